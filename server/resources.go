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
	"pmcp/logstore/line"
	"pmcp/process"
	"pmcp/server/page"
	"pmcp/server/stdio"
)

const (
	jsonType = "application/json"
	// recentLines is the number of lines in a log resource whose URI does not give
	// a number.
	recentLines = 100
	// topProcesses is the number of processes in metrics://summary.
	topProcesses = 5
)

// A resource is one row of a table of resources: a fixed resource, or a template
// with {name} in its URI. The value that read returns is sent as JSON.
type resource struct {
	uri, name, title, description string
	// read returns the content; v holds the variables of a template.
	read func(ctx context.Context, s *call, v variables) (any, error)
}

// variables are the values of a template's variables.
type variables struct{ name, lines string }

// resources returns the table of fixed resources, in the order of the README.
func resources() []resource {
	return []resource{
		{"processes://list", "processes", "Processes", "processes of the project with state, CPU and memory",
			func(ctx context.Context, s *call, _ variables) (any, error) {
				return listProcesses(ctx, s, listArgs{})
			}},
		{"logs://recent", "recent-logs", "Recent log", "last 100 lines of all processes",
			func(ctx context.Context, s *call, _ variables) (any, error) { return s.recentLog(ctx, variables{}) }},
		{"errors://latest", "errors", "Latest errors", "unresolved errors, latest first, with a summary",
			func(ctx context.Context, s *call, _ variables) (any, error) {
				return getLatestErrors(ctx, s, latestErrorsArgs{})
			}},
		{"groups://list", "groups", "Groups", "groups with members and their states",
			func(ctx context.Context, s *call, _ variables) (any, error) {
				return listGroups(ctx, s, listGroupsArgs{})
			}},
		{"health://status", "health", "Health", "health checks with their last results",
			func(_ context.Context, s *call, _ variables) (any, error) { return s.healthSummary(), nil }},
		{"metrics://summary", "metrics", "Metrics", "the machine, and the processes that use most of it",
			func(ctx context.Context, s *call, _ variables) (any, error) { return s.metrics(ctx) }},
	}
}

// templates returns the table of resource templates. No two templates match the
// same URI.
func templates() []resource {
	return []resource{
		{"processes://{name}", "process", "Process", "everything about one process",
			func(ctx context.Context, s *call, v variables) (any, error) {
				return getProcessInfo(ctx, s, processInfoArgs{Process: v.name})
			}},
		{"logs://{name}{?lines}", "process-log", "Process log", "last lines of a process's latest run, 100 by default",
			func(ctx context.Context, s *call, v variables) (any, error) { return s.recentLog(ctx, v) }},
		{"errors://{name}", "process-errors", "Process errors", "errors of one process, latest first",
			func(ctx context.Context, s *call, v variables) (any, error) {
				return getErrors(ctx, s, getErrorsArgs{Process: v.name})
			}},
	}
}

func uris(table []resource) []string {
	all := make([]string, len(table))
	for i, r := range table {
		all[i] = r.uri
	}
	return all
}

// unknownResource returns the error text for an unknown URI. The text lists the
// known URIs.
func unknownResource(uri string) string {
	return fmt.Sprintf("no such resource: %.200q (there are: %s)", uri, strings.Join(slices.Concat(uris(resources()), uris(templates())), ", "))
}

// resourceProblem returns the error text for a URI that is neither the URI of a
// resource nor of an instance of a template, else "". The process of the instance
// need not exist.
func resourceProblem(uri string) string {
	kind, name := splitURI(uri)
	_, query, _ := strings.Cut(uri, "?")
	isInstance := func(t resource) bool {
		return name != "" && strings.HasPrefix(t.uri, kind+"://{name}") &&
			(query == "" || strings.HasSuffix(t.uri, "{?lines}") && strings.HasPrefix(query, "lines="))
	}
	if slices.Contains(uris(resources()), uri) || slices.ContainsFunc(templates(), isInstance) {
		return ""
	}
	return unknownResource(uri)
}

// dashboardURI is the resource that holds the page of pmcp open as an MCP App, which a
// client with the extension io.modelcontextprotocol/ui shows for list_processes. appType is
// its type.
const (
	dashboardURI = "ui://pmcp/dashboard"
	appType      = "text/html;profile=mcp-app"
)

// readDashboard returns the MCP App. It needs nothing from elsewhere, so a client may let
// it load nothing.
func readDashboard(context.Context, mcp.ReadResourceRequest) ([]mcp.ResourceContents, error) {
	return []mcp.ResourceContents{mcp.TextResourceContents{URI: dashboardURI, MIMEType: appType, Text: page.HTML}}, nil
}

// addResources registers both tables, resources and templates, and the MCP App.
func (s *Server) addResources() {
	s.mcp.AddResource(mcp.NewResource(dashboardURI, "dashboard", mcp.WithResourceTitle("Dashboard"),
		mcp.WithResourceDescription("processes, logs and errors, for a person"), mcp.WithMIMEType(appType)), readDashboard)
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

// maxInstances bounds the number of processes in resources/list.
const maxInstances = 100

// addInstances appends instances of the templates to the answer to resources/list,
// after the fixed resources: one for each template and process of this session,
// sorted by process name. Clients read the instances through the templates. A later
// page gets no instances: the fixed resources fit on the first page, and a client
// must not get an instance twice.
func (s *Server) addInstances(_ context.Context, _ any, req *mcp.ListResourcesRequest, result *mcp.ListResourcesResult) {
	if req.Params.Cursor != "" {
		return
	}
	list := s.o.Manager.List()
	slices.SortFunc(list, func(a, b process.Status) int { return strings.Compare(a.Spec.Name, b.Spec.Name) })
	fixed := uris(resources())
	for _, st := range list[:min(len(list), maxInstances)] {
		for _, template := range templates() {
			if instance := template.instance(st.Spec.Name); !slices.Contains(fixed, instance.uri) {
				result.Resources = append(result.Resources, instance.definition())
			}
		}
	}
}

func (r resource) instance(name string) resource {
	r.uri = strings.Replace(strings.TrimSuffix(r.uri, "{?lines}"), "{name}", url.QueryEscape(name), 1)
	r.name, r.title, r.description = name+" "+r.name, r.title+": "+name, ""
	return r
}

// readResource returns the handler of r. For an unknown process or an invalid
// variable the handler returns a protocol error with the code of the client's
// protocol version; any other failure is an internal error.
func (s *Server) readResource(r resource) mcpserver.ResourceHandlerFunc {
	return func(ctx context.Context, req mcp.ReadResourceRequest) ([]mcp.ResourceContents, error) {
		uri := requestedURI(&req)
		v := variables{name: variable(req, "name"), lines: variable(req, "lines")}
		if v.name == "" && strings.Contains(r.uri, "{name}") { // if the URI has more than the template, mcp-go finds no variables in it
			return nil, stdio.ResourceNotFound(ctx, uri, unknownResource(uri))
		}
		content, err := r.read(ctx, s.ownCall(), v)
		switch {
		case errors.Is(err, process.ErrUnknown):
			return nil, stdio.ResourceNotFound(ctx, uri, s.o.Mask.Text(errorText(err)))
		case err != nil:
			return nil, errors.New(s.o.Mask.Text(errorText(err)))
		}
		raw, err := readableJSON(content)
		if err != nil {
			return nil, fmt.Errorf("cannot encode %s: %w", uri, err)
		}
		return []mcp.ResourceContents{mcp.TextResourceContents{URI: uri, MIMEType: jsonType, Text: string(line.VisibleJSON(s.o.Mask.JSON(raw)))}}, nil
	}
}

// requestedURIHeader is the header in which allowPlainName keeps the URI that the
// client sent. No client sets this header: a request over stdio has no headers.
const requestedURIHeader = "Asked-Uri"

// allowPlainName escapes the characters in a process name that a template requires
// to be escaped. Clients may leave these characters unescaped in a subscription,
// and therefore in a read too.
func allowPlainName(_ context.Context, _ any, req *mcp.ReadResourceRequest) {
	uri := req.Params.URI
	kind, rest, _ := strings.Cut(uri, "://")
	name, query, asks := strings.Cut(rest, "?")
	if !strings.ContainsAny(name, ":@") {
		return
	}
	req.Header = http.Header{requestedURIHeader: {uri}}
	req.Params.URI = kind + "://" + strings.NewReplacer(":", "%3A", "@", "%40").Replace(name)
	if asks {
		req.Params.URI += "?" + query
	}
}

func requestedURI(req *mcp.ReadResourceRequest) string {
	return cmp.Or(req.Header.Get(requestedURIHeader), req.Params.URI)
}

// readableJSON returns content as JSON for a model to read: it does not escape the
// characters < > &.
func readableJSON(content any) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	err := enc.Encode(content)
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), err
}

// variable returns the value of one variable of a template. mcp-go passes each
// value as a list.
func variable(req mcp.ReadResourceRequest, name string) string {
	values, _ := req.Params.Arguments[name].([]string)
	return strings.Join(values, ",")
}

// recentLog returns the end of the log of one process's latest run or, without a
// name, of the latest runs of all processes.
func (s *call) recentLog(ctx context.Context, v variables) (logsResult, error) {
	a := tailLogsArgs{Process: v.name, outputArgs: outputArgs{Lines: recentLines}}
	if v.lines != "" {
		n, err := strconv.Atoi(v.lines)
		if err != nil || n < 1 || n > maxPageLines {
			return logsResult{}, stdio.InvalidParams(ctx, line.Visible(fmt.Sprintf("lines=%s: want a number from 1 to %d", v.lines, maxPageLines)))
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

// healthSummary returns the health of all checked processes, with the last result
// of each check.
func (s *Server) healthSummary() healthSummaryResult {
	r := healthSummaryResult{Checks: []healthResult{}}
	for _, st := range s.o.Health.List() {
		switch st.State {
		case health.Healthy:
			r.Healthy++
		case health.Unhealthy:
			r.Unhealthy++
		}
		st.Results = st.Results[max(0, len(st.Results)-1):]
		r.Checks = append(r.Checks, newHealthResult(&st))
	}
	return r
}

// metricsResult is the content of metrics://summary.
type metricsResult struct {
	System       systemStatsResult `json:"system"`
	TopProcesses []topProcess      `json:"top_processes"`
}

type topProcess struct {
	Name string `json:"name"`
	usageResult
}

// metrics returns the usage of the machine and of the processes that use the most
// CPU and memory.
func (s *call) metrics(ctx context.Context) (metricsResult, error) {
	system, err := getSystemStats(ctx, s, systemStatsArgs{})
	if err != nil {
		return metricsResult{}, err
	}
	r := metricsResult{System: system, TopProcesses: []topProcess{}}
	list := slices.DeleteFunc(s.o.Manager.List(), func(st process.Status) bool { return !st.State.Live() })
	slices.SortFunc(list, func(a, b process.Status) int { // compares the figures as they are shown, so that the order is stable
		return cmp.Or(cmp.Compare(round(b.CPUPercent), round(a.CPUPercent)), cmp.Compare(b.MemoryBytes, a.MemoryBytes), cmp.Compare(a.Spec.Name, b.Spec.Name))
	})
	for _, st := range list[:min(len(list), topProcesses)] {
		r.TopProcesses = append(r.TopProcesses, topProcess{st.Spec.Name, *newUsageResult(process.Usage{CPUPercent: st.CPUPercent, MemoryBytes: st.MemoryBytes, Processes: st.Processes})})
	}
	return r, nil
}
