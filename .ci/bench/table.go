package main

const (
	e2e      = "./e2e"
	logstore = "./logstore"
	fault    = "./logstore/fault"
)

// Baselines.
const (
	bareServer = "a bare mcp-go server"
	rowStore   = "a row for each line, LIKE"
)

// row is one line of the table.
type row struct {
	what     string
	pmcp     figure
	base     figure // none without a name
	baseline string // what it is
	wish     wish
}

func (r row) figures() []figure {
	if r.base.name == "" {
		return []figure{r.pmcp}
	}
	return []figure{r.pmcp, r.base}
}

// wish is a bound that was asked for. The zero wish is none.
type wish struct {
	atMost float64 // of pmcp's figure, in its unit
	factor float64 // how much better than the baseline; 0.5 is half as good
}

// table is everything that is measured, in the order in which it is printed.
var table = []row{
	{"start: exec → `initialize` is answered", at("Startup/pmcp", "p50-µs"), at("Startup/bare_mcp-go", "p50-µs"), bareServer, wish{atMost: 100_000}},
	{"`start_process` → answer", at("StartProcess/pmcp", "p50-µs"), at("StartProcess/bare", "p50-µs"), "`exec.Cmd.Start` of the same program", wish{factor: 0.5}},
	{"`stop_process` of a tree of ten → answer", at("StopTree/pmcp", "p50-µs"), at("StopTree/bare", "p50-µs"), "`kill` of its group, until all are gone", wish{}},
	{"end of a session with 50 processes: stdin closed → exited", at("Fifty", "end-ms"), at("Fifty", "bare-end-ms"), "SIGTERM to 50 processes, until all are gone", wish{}},
	{"`ping`", at("Latency/ping/pmcp", "p50-µs"), at("Latency/ping/bare_mcp-go", "p50-µs"), bareServer, wish{}},
	{"`tools/list`", at("Latency/tools_list/pmcp", "p50-µs"), at("Latency/tools_list/bare_mcp-go", "p50-µs"), bareServer + ", the same tools", wish{atMost: 2000}},
	{"`list_processes`, no process", at("Latency/list_processes/pmcp", "p50-µs"), at("Latency/list_processes/bare_mcp-go", "p50-µs"), bareServer + ", a tool that does nothing", wish{atMost: 500}},
	{"`list_processes`, 50 processes", at("Fifty", "p50-µs"), at("Latency/list_processes/bare_mcp-go", "p50-µs"), bareServer + ", a tool that does nothing", wish{atMost: 2000}},
	{"memory with 50 processes (guardian and server, PSS)", at("Fifty", "PSS-MiB"), at("Fifty", "bare-PSS-MiB"), bareServer, wish{atMost: 60}},
	{"idle CPU with 50 processes, of one core", at("Fifty", "idle-CPU-%"), at("Fifty", "bare-idle-CPU-%"), bareServer, wish{atMost: 2}},
	{"output of a child through the built binary, each line suspected of an error", at("Flood/pmcp", "lines/s"), at("Flood/discard", "lines/s"), "a reader that throws it away", wish{}},
	{"memory at that (guardian and server, highest RSS)", at("Flood/pmcp", "peak-MiB"), figure{}, "", wish{atMost: 80}},

	{"pipe → committed, the child writes line by line", store("Pipe/line-by-line/store", "lines/s"), store("Pipe/line-by-line/split", "lines/s"), "a reader that splits it into lines", wish{factor: 0.6}},
	{"pipe → committed, the child writes 64 KiB blocks", store("Pipe/64K-blocks/store", "lines/s"), store("Pipe/64K-blocks/split", "lines/s"), "a reader that splits it into lines", wish{factor: 0.15}},
	{"ingest with everything on", store("Ingest/store", "lines/s"), store("Ingest/rows", "lines/s"), rowStore, wish{factor: 5}},
	{"CPU of a line", store("Ingest/store", "cpu-ns/line"), store("Ingest/rows", "cpu-ns/line"), rowStore, wish{}},
	{"of that, recognising errors in ordinary lines", figure{fault, "Ordinary", "cpu-ns/line"}, figure{}, "", wish{atMost: 150}},
	{"disk for a line", store("Ingest/store", "B/line"), store("Ingest/rows", "B/line"), rowStore, wish{}},
	{"ingest beside 4 readers that search", store("ReadersAndWriter", "lines/s"), store("ReadersAndWriter", "alone-lines/s"), "without readers", wish{factor: 0.7}},
	{"100 lines flushed", store("Flush/store", "ms-p50"), store("Flush/rows", "ms-p50"), rowStore, wish{atMost: 2}},
	query("search, absent text", "absent", wish{factor: 50}),
	{"search, absent text, any case", store("Query/absent-nocase/store", "ns/op"), store("Query/absent/rows", "ns/op"), rowStore, wish{factor: 50}},
	query("search, rare text (10 lines)", "rare", wish{factor: 25}),
	{"search, rare text, any case", store("Query/rare-nocase/store", "ns/op"), store("Query/rare/rows", "ns/op"), rowStore, wish{factor: 25}},
	query("search, common text, newest 100", "common-100", wish{atMost: 5e6}),
	query("count of a common text", "common-count", wish{factor: 1}),
	{"search, regular expression with a literal", store("Query/regexp-literal/store", "ns/op"), store("Query/regexp-no-literal/rows", "ns/op"), "rows and a Go REGEXP function", wish{}},
	{"count by a regular expression without a literal", store("Query/regexp-no-literal/store", "ns/op"), store("Query/regexp-no-literal/rows", "ns/op"), "rows and a Go REGEXP function", wish{factor: 1}},
	query("last 100 lines of a process", "tail-100", wish{atMost: 0.2e6}),
	query("page of 100 lines by cursor", "page-100", wish{atMost: 2e6}),
	query("lines by level", "count-by-level", wish{atMost: 1e6}),
	query("opening the database and the first page", "reopen", wish{}),
}

func at(name, unit string) figure    { return figure{e2e, name, unit} }
func store(name, unit string) figure { return figure{logstore, name, unit} }

// query is a row of BenchmarkQuery.
func query(what, name string, w wish) row {
	return row{what, store("Query/"+name+"/store", "ns/op"), store("Query/"+name+"/rows", "ns/op"), rowStore, w}
}
