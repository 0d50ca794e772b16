package main

const (
	e2e      = "./e2e"
	logstore = "./logstore"
	fault    = "./logstore/fault"
)

// browsers is the benchmark that needs a browser, and is skipped without one.
const browsers = "Page"

// Baselines.
const (
	bareServer = "a bare mcp-go server"
	bareStart  = "`pmcp --version`"
	bareCall   = "a bare mcp-go server, the same answer"
	rowStore   = "a row for each line, LIKE"
)

// A row is one line of the table.
type row struct {
	what     string
	pmcp     figure
	base     figure // has no name if there is no baseline
	baseline string // describes base
	target   target
}

func (r row) figures() []figure {
	if r.base.name == "" {
		return []figure{r.pmcp}
	}
	return []figure{r.pmcp, r.base}
}

// A target is a bound that was set in advance. The zero target is none.
type target struct {
	atMost float64 // of pmcp's figure, in its unit
	factor float64 // how much better than the baseline; 0.5 is half as good
}

// table holds everything that is measured, in the order of printing.
var table = []row{
	{"start: exec → `initialize` is answered", at("Startup/pmcp", "p50-µs"), at("Startup/bare_mcp-go", "p50-µs"), bareServer, target{factor: 1 / 1.9}},
	{"`start_process` → answer", at("StartStop", "start-p50-µs"), at("StartStop", "bare-start-p50-µs"), "exec, and " + bareCall, target{factor: 1. / 2}},
	{"`stop_process` → answer", at("StartStop", "stop-p50-µs"), at("StartStop", "bare-stop-p50-µs"), "signal and wait, and " + bareCall, target{factor: 1. / 4}},
	{"`stop_process` of a tree of ten → answer", at("StopTree/pmcp", "p50-µs"), at("StopTree/bare", "p50-µs"), "`kill` of its group, until all are gone", target{}},
	{"end of a session with 50 processes: stdin closed → exited", at("Fifty", "end-ms"), at("Fifty", "bare-end-ms"), "SIGTERM to 50 processes, until all are gone", target{}},
	{"`ping`", at("Latency/ping/pmcp", "p50-µs"), at("Latency/ping/bare_mcp-go", "p50-µs"), bareServer, target{}},
	{"`tools/list`", at("Latency/tools_list/pmcp", "p50-µs"), at("Latency/tools_list/bare_mcp-go", "p50-µs"), bareServer + ", the same tools", target{atMost: 2000}},
	{"`list_processes`, no process", at("Latency/list_processes/pmcp", "p50-µs"), at("Latency/list_processes/bare_mcp-go", "p50-µs"), bareServer + ", a tool that does nothing", target{atMost: 500}},
	call("`list_processes`, 10 processes", "list_processes", 2),
	call("`get_process_info`", "get_process_info", 3),
	call("`get_server_info`", "get_server_info", 3),
	call("`get_system_stats`", "get_system_stats", 3),
	{"`list_processes`, 50 processes", at("Fifty", "p50-µs"), at("Latency/list_processes/bare_mcp-go", "p50-µs"), bareServer + ", a tool that does nothing", target{atMost: 2000}},
	{"1,000 names of an earlier session: `list_processes`", at("ManyNames", "list-p50-µs"), figure{}, "", target{atMost: 15_000}},
	{"1,000 names of an earlier session: `tail_logs` of one", at("ManyNames", "tail-p50-µs"), figure{}, "", target{atMost: 2_000}},
	{"memory without processes (guardian and server, PSS)", at("Fifty", "idle-PSS-MiB"), at("Fifty", "bare-PSS-MiB"), bareServer, target{atMost: 20}},
	{"memory with 50 processes (guardian and server, PSS)", at("Fifty", "PSS-MiB"), at("Fifty", "bare-PSS-MiB"), bareServer, target{atMost: 28}},
	{"idle wake-ups without processes", at("Fifty", "idle-wakeups/s"), figure{}, "", target{atMost: 1}},
	{"idle wake-ups with 50 processes", at("Fifty", "wakeups/s"), figure{}, "", target{atMost: 12}},
	{"idle CPU with 50 processes, of one core", at("Fifty", "idle-CPU-%"), at("Fifty", "bare-idle-CPU-%"), bareServer, target{atMost: 2}},
	{"`pmcp ps` beside ten processes: exec → first output", at("Commands/ps", "p50-µs"), at("Commands/ps", "bare-p50-µs"), bareStart, target{atMost: 40_000}},
	{"`pmcp logs`, the first line", at("Commands/logs", "p50-µs"), at("Commands/logs", "bare-p50-µs"), bareStart, target{}},
	{"the same beyond a bare start", at("Commands/logs", "beyond-p50-µs"), figure{}, "", target{atMost: 30_000}},
	{"`pmcp logs -f`: line printed → shown, 99 % of the lines", at("Follow/pmcp", "p99-µs"), at("Follow/tail", "p99-µs"), "`tail -f` of a file", target{atMost: 150_000}},
	{"the page beside 50 processes with 2,000 lines a second: CPU of its servers, of one core", at(browsers, "page-CPU-%"), at(browsers, "bare-CPU-%"), "the server that stores these lines", target{atMost: 15}},
	{"processor time of the longest task of the browser's main thread then", at(browsers, "longest-CPU-ms"), figure{}, "", target{atMost: 200}},
	{"output of a child through the built binary, a million lines of 100 bytes", at("Flood/pmcp", "lines/s"), at("Flood/discard", "lines/s"), "a reader that throws it away", target{factor: 1 / 1.9}},
	{"memory at that (guardian and server, highest RSS)", at("Flood/pmcp", "peak-MiB"), figure{}, "", target{atMost: 80}},
	{"`search_logs` at once after a million lines, a rare text", at("Flooded/rare", "p50-µs"), at("Flooded/rare", "bare-p50-µs"), "`ping` of " + bareServer, target{factor: 1. / 8}},
	{"the same, an absent text", at("Flooded/absent", "p50-µs"), at("Flooded/absent", "bare-p50-µs"), "`ping` of " + bareServer, target{factor: 1. / 3}},
	{"`get_logs`, a page of 10,000 lines", at("Flooded/page", "p50-µs"), at("Flooded/page", "bare-p50-µs"), bareCall, target{factor: 1. / 5}},

	{"pipe → committed, the child writes line by line", store("Pipe/line-by-line/store", "lines/s"), store("Pipe/line-by-line/split", "lines/s"), "a reader that splits it into lines", target{factor: 0.6}},
	{"pipe → committed, the child writes 64 KiB blocks", store("Pipe/64K-blocks/store", "lines/s"), store("Pipe/64K-blocks/split", "lines/s"), "a reader that splits it into lines", target{factor: 0.15}},
	{"ingest with everything on", store("Ingest/store", "lines/s"), store("Ingest/rows", "lines/s"), rowStore, target{factor: 5}},
	{"CPU of a line", store("Ingest/store", "cpu-ns/line"), store("Ingest/rows", "cpu-ns/line"), rowStore, target{}},
	{"of that, recognising errors in ordinary lines", figure{fault, "OrdinaryLines", "cpu-ns/line"}, figure{}, "", target{atMost: 150}},
	disk("access log", "access", 0.25), disk("build log", "build", 0.25), disk("JSON log", "json", 0.3),
	{"lines of an access log in 100 MB", store("Disk/access", "lines"), figure{}, "", target{}},
	{"lines of a build log in 100 MB", store("Disk/build", "lines"), figure{}, "", target{}},
	{"lines of a JSON log in 100 MB", store("Disk/json", "lines"), figure{}, "", target{}},
	{"disk for a line", store("Ingest/store", "B/line"), store("Ingest/rows", "B/line"), rowStore, target{}},
	{"ingest beside 4 readers that search", store("ReadersAndWriter", "lines/s"), store("ReadersAndWriter", "alone-lines/s"), "without readers", target{factor: 0.7}},
	{"100 lines flushed", store("Flush/store", "ms-p50"), store("Flush/rows", "ms-p50"), rowStore, target{atMost: 2}},
	query("search, absent text", "absent", target{factor: 50}),
	{"search, absent text, any case", store("Query/absent-nocase/store", "ns/op"), store("Query/absent/rows", "ns/op"), rowStore, target{factor: 50}},
	query("search, rare text (10 lines)", "rare", target{factor: 25}),
	{"search, rare text, any case", store("Query/rare-nocase/store", "ns/op"), store("Query/rare/rows", "ns/op"), rowStore, target{factor: 25}},
	query("search, common text, newest 100", "common-100", target{atMost: 5e6}),
	query("count of a common text", "common-count", target{factor: 1}),
	{"search, regular expression with a literal", store("Query/regexp-literal/store", "ns/op"), store("Query/regexp-no-literal/rows", "ns/op"), "rows and a Go REGEXP function", target{}},
	{"count by a regular expression without a literal", store("Query/regexp-no-literal/store", "ns/op"), store("Query/regexp-no-literal/rows", "ns/op"), "rows and a Go REGEXP function", target{factor: 1}},
	query("last 100 lines of a process", "tail-100", target{atMost: 0.2e6}),
	query("page of 100 lines by cursor", "page-100", target{atMost: 2e6}),
	query("lines by level", "count-by-level", target{atMost: 1e6}),
	query("opening the database and the first page", "reopen", target{}),
	{"10M lines: search, absent text", store("TenMillion/absent", "ns/op"), figure{}, "", target{atMost: 10e6}},
	{"10M lines: search, rare text (100 lines)", store("TenMillion/rare", "ns/op"), figure{}, "", target{}},
	{"10M lines: opening the database and the first page", store("TenMillion/reopen", "ns/op"), figure{}, "", target{atMost: 10e6}},
}

func at(name, unit string) figure    { return figure{e2e, name, unit} }
func store(name, unit string) figure { return figure{logstore, name, unit} }

// call returns a row of BenchmarkCalls. most is how much slower pmcp may be than a bare
// server.
func call(what, tool string, most float64) row {
	return row{what, at("Calls/"+tool, "p50-µs"), at("Calls/"+tool, "bare-p50-µs"), bareCall, target{factor: 1 / most}}
}

// disk returns a row of BenchmarkDisk.
func disk(what, name string, most float64) row {
	return row{"disk for 64 MiB of " + what + ", write-ahead log included", store("Disk/"+name, "disk/text"), figure{}, "", target{atMost: most}}
}

// query returns a row of BenchmarkQuery.
func query(what, name string, w target) row {
	return row{what, store("Query/"+name+"/store", "ns/op"), store("Query/"+name+"/rows", "ns/op"), rowStore, w}
}
