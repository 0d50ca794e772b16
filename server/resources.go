package server

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/mark3labs/mcp-go/mcp"
	mcpserver "github.com/mark3labs/mcp-go/server"

	"pmcp/health"
	"pmcp/process"
)

const (
	jsonType = "application/json"
	// recentLines is how many lines a log resource has unless its URI says.
	recentLines = 100
	// topProcesses is how many processes metrics://summary names.
	topProcesses = 5
)

// resource is one row of the table of resources: fixed, or a template with
// {name} in its URI. What read gives is sent as JSON.
type resource struct {
	uri, name, title, description string
	// read gives the content; v are the variables of a template.
	read func(ctx context.Context, s *Server, v variables) (any, error)
}

// variables are the values of a template's variables.
type variables struct{ name, lines string }

// resources is the table, in the order of the README.
func resources() []resource {
	return []resource{
		{"processes://list", "processes", "Processes", "processes of the project with state, CPU and memory",
			func(ctx context.Context, s *Server, _ variables) (any, error) {
				return listProcesses(ctx, s, listArgs{})
			}},
		{"logs://recent", "recent-logs", "Recent log", "last 100 lines of all processes",
			func(ctx context.Context, s *Server, _ variables) (any, error) { return s.recentLog(ctx, variables{}) }},
		{"errors://latest", "errors", "Latest errors", "unresolved errors, latest first, with a summary",
			func(ctx context.Context, s *Server, _ variables) (any, error) {
				return getLatestErrors(ctx, s, latestErrorsArgs{})
			}},
		{"groups://list", "groups", "Groups", "groups with members and their states",
			func(ctx context.Context, s *Server, _ variables) (any, error) {
				return listGroups(ctx, s, listGroupsArgs{})
			}},
		{"health://status", "health", "Health", "health checks with their last results",
			func(_ context.Context, s *Server, _ variables) (any, error) { return s.healthSummary(), nil }},
		{"metrics://summary", "metrics", "Metrics", "the machine, and the processes that use most of it",
			func(ctx context.Context, s *Server, _ variables) (any, error) { return s.metrics(ctx) }},
	}
}

// templates is the table of resource templates. No two match one URI.
func templates() []resource {
	return []resource{
		{"processes://{name}", "process", "Process", "everything about one process",
			func(ctx context.Context, s *Server, v variables) (any, error) {
				return getProcessInfo(ctx, s, processInfoArgs{Process: v.name})
			}},
		{"logs://{name}{?lines}", "process-log", "Process log", "last lines of a process's latest run, 100 unless lines says",
			func(ctx context.Context, s *Server, v variables) (any, error) { return s.recentLog(ctx, v) }},
		{"errors://{name}", "process-errors", "Process errors", "errors of one process, latest first",
			func(ctx context.Context, s *Server, v variables) (any, error) {
				return getErrors(ctx, s, getErrorsArgs{Process: v.name})
			}},
	}
}

// uris lists the URIs of a table.
func uris(table []resource) []string {
	all := make([]string, len(table))
	for i, r := range table {
		all[i] = r.uri
	}
	return all
}

// unknownResource says which resources there are instead.
func unknownResource(uri string) string {
	return fmt.Sprintf("no such resource: %.200q (there are: %s)", uri, strings.Join(slices.Concat(uris(resources()), uris(templates())), ", "))
}

// addResources registers both tables.
func (s *Server) addResources() {
	for _, r := range resources() {
		s.mcp.AddResource(r.definition(), s.readResource(r))
	}
	for _, r := range templates() {
		s.mcp.AddResourceTemplate(
			mcp.NewResourceTemplate(r.uri, r.name, mcp.WithTemplateTitle(r.title), mcp.WithTemplateDescription(r.description), mcp.WithTemplateMIMEType(jsonType)),
			mcpserver.ResourceTemplateHandlerFunc(s.readResource(r)))
	}
}

func (r resource) definition() mcp.Resource {
	return mcp.NewResource(r.uri, r.name, mcp.WithResourceTitle(r.title), mcp.WithResourceDescription(r.description), mcp.WithMIMEType(jsonType))
}

// maxInstances bounds how many processes resources/list names.
const maxInstances = 100

// addInstances completes the answer to resources/list with the templates'
// instances: those of this session's processes, by name. They are read through
// the templates; the fixed resources stand before them. A client that asks for
// what comes behind a cursor gets none of them twice, since the fixed ones fit
// on one page.
func (s *Server) addInstances(_ context.Context, _ any, req *mcp.ListResourcesRequest, result *mcp.ListResourcesResult) {
	if req.Params.Cursor != "" {
		return
	}
	list := s.o.Manager.List()
	slices.SortFunc(list, func(a, b process.Status) int { return strings.Compare(a.Spec.Name, b.Spec.Name) })
	fixed := uris(resources())
	for _, st := range list[:min(len(list), maxInstances)] {
		for _, template := range templates() {
			if instance := template.of(st.Spec.Name); !slices.Contains(fixed, instance.uri) {
				result.Resources = append(result.Resources, instance.definition())
			}
		}
	}
}

// of is the instance of a template for one process.
func (r resource) of(name string) resource {
	r.uri = strings.Replace(strings.TrimSuffix(r.uri, "{?lines}"), "{name}", url.QueryEscape(name), 1)
	r.name, r.title, r.description = name+" "+r.name, r.title+": "+name, ""
	return r
}

// readResource is a row's handler. An unknown process is an error of the
// protocol, with the code of the client's era, and so is a variable that is
// wrong; anything else that fails is an internal error.
func (s *Server) readResource(r resource) mcpserver.ResourceHandlerFunc {
	return func(ctx context.Context, req mcp.ReadResourceRequest) ([]mcp.ResourceContents, error) {
		uri := askedURI(&req)
		v := variables{name: variable(req, "name"), lines: variable(req, "lines")}
		if v.name == "" && strings.Contains(r.uri, "{name}") { // mcp-go finds no variable where a URI has more than the template
			return nil, resourceNotFound(ctx, uri, unknownResource(uri))
		}
		content, err := r.read(ctx, s, v)
		var wrong variableError
		switch {
		case errors.Is(err, process.ErrUnknown):
			return nil, resourceNotFound(ctx, uri, s.o.Mask.Text(err.Error()))
		case errors.As(err, &wrong):
			return nil, invalidParams(ctx, err.Error())
		case err != nil:
			return nil, errors.New(s.o.Mask.Text(err.Error()))
		}
		raw, err := readableJSON(content)
		if err != nil {
			return nil, fmt.Errorf("cannot encode %s: %w", uri, err)
		}
		return []mcp.ResourceContents{mcp.TextResourceContents{URI: uri, MIMEType: jsonType, Text: string(s.o.Mask.JSON(raw))}}, nil
	}
}

// askedHeader is where a request that allowPlainName has changed has the URI
// that was asked for; a request that came by stdio has no headers of its own.
const askedHeader = "Asked-Uri"

// allowPlainName escapes what a template wants escaped in the name of a process:
// to subscribe, a client may leave it as it is, and so it may to read.
func allowPlainName(_ context.Context, _ any, req *mcp.ReadResourceRequest) {
	uri := req.Params.URI
	kind, rest, _ := strings.Cut(uri, "://")
	name, query, asks := strings.Cut(rest, "?")
	if !strings.ContainsAny(name, ":@") {
		return
	}
	req.Header = http.Header{askedHeader: {uri}}
	req.Params.URI = kind + "://" + strings.NewReplacer(":", "%3A", "@", "%40").Replace(name)
	if asks {
		req.Params.URI += "?" + query
	}
}

// askedURI is the URI as the client wrote it.
func askedURI(req *mcp.ReadResourceRequest) string {
	return cmp.Or(req.Header.Get(askedHeader), req.Params.URI)
}

// readableJSON is content as JSON for a model to read: < > & stand for themselves.
func readableJSON(content any) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	err := enc.Encode(content)
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), err
}

// variable is one variable of a template; mcp-go gives each as a list.
func variable(req mcp.ReadResourceRequest, name string) string {
	switch value := req.Params.Arguments[name].(type) {
	case []string:
		return strings.Join(value, ",")
	case string:
		return value
	default:
		return ""
	}
}

// variableError says what is wrong with a variable of a template.
type variableError string

func (e variableError) Error() string { return string(e) }

// recentLog is the end of the log: of one process's latest run, or of the
// latest runs of all.
func (s *Server) recentLog(ctx context.Context, v variables) (logsResult, error) {
	a := tailLogsArgs{Process: v.name, Lines: recentLines}
	if v.lines != "" {
		n, err := strconv.Atoi(v.lines)
		if err != nil || n < 1 || n > maxPageLines {
			return logsResult{}, variableError(fmt.Sprintf("lines=%s: want a number from 1 to %d", v.lines, maxPageLines))
		}
		a.Lines = n
	}
	return tailLogs(ctx, s, a)
}

// healthSummaryResult is the content of health://status.
type healthSummaryResult struct {
	Healthy   int            `json:"healthy"`
	Unhealthy int            `json:"unhealthy"`
	Checks    []healthResult `json:"checks"`
}

func (s *Server) healthSummary() healthSummaryResult {
	r := healthSummaryResult{Checks: []healthResult{}}
	for _, st := range s.o.Health.List() {
		switch st.State {
		case health.Healthy:
			r.Healthy++
		case health.Unhealthy:
			r.Unhealthy++
		}
		if last := st.Last(); last != nil {
			st.Results = st.Results[len(st.Results)-1:]
		}
		r.Checks = append(r.Checks, ofHealth(&st))
	}
	return r
}

// metricsResult is the content of metrics://summary.
type metricsResult struct {
	System       systemStatsResult `json:"system"`
	TopProcesses []topProcess      `json:"top_processes"`
}

type topProcess struct {
	Name        string  `json:"name"`
	CPUPercent  float64 `json:"cpu_percent"`
	MemoryBytes uint64  `json:"memory_bytes"`
	Processes   int     `json:"processes"`
}

func (s *Server) metrics(ctx context.Context) (metricsResult, error) {
	system, err := getSystemStats(ctx, s, systemStatsArgs{})
	if err != nil {
		return metricsResult{}, err
	}
	r := metricsResult{System: system, TopProcesses: []topProcess{}}
	list := slices.DeleteFunc(s.o.Manager.List(), func(st process.Status) bool { return !st.State.Live() })
	slices.SortFunc(list, func(a, b process.Status) int { // as shown, so that the order is stable
		return cmp.Or(cmp.Compare(round(b.CPUPercent), round(a.CPUPercent)), cmp.Compare(b.MemoryBytes, a.MemoryBytes), cmp.Compare(a.Spec.Name, b.Spec.Name))
	})
	for _, st := range list[:min(len(list), topProcesses)] {
		r.TopProcesses = append(r.TopProcesses, topProcess{Name: st.Spec.Name, CPUPercent: round(st.CPUPercent), MemoryBytes: st.MemoryBytes, Processes: st.Processes})
	}
	return r, nil
}
