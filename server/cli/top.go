package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/spf13/cobra"

	"pmcp/logstore"
	"pmcp/logstore/line"
	"pmcp/process"
	"pmcp/server/project"
)

const (
	topInterval = time.Second // between two measurements
	topHistory  = 60          // measurements that are kept of each process
	sparkWidth  = 10
)

func (s *screen) topCommand() *cobra.Command {
	return &cobra.Command{
		Use: "top", Short: "Watch processes with their CPU, memory and log", Args: takesNone,
		Long:    "Shows the processes and the log of the selected one, once a second. Arrow keys select, q ends.",
		Example: "  pmcp top\n  pmcp top --all",
		RunE:    func(cmd *cobra.Command, _ []string) error { return s.top(cmd.Context()) },
	}
}

// top shows the live table until q or a signal ends it. The terminal is then as it was.
func (s *screen) top(ctx context.Context) error {
	s.found = true
	if s.out.width == 0 || s.json || dumb() {
		return errors.New("top needs a terminal that moves its cursor; pmcp ps prints the table once")
	}
	r, err := s.read(ctx)
	if err != nil {
		return err
	}
	defer r.Close()
	m := &topModel{ctx: ctx, s: s, r: r, history: make(map[int64][]process.Usage)}
	_, err = tea.NewProgram(m, tea.WithContext(ctx), tea.WithOutput(os.Stdout)).Run()
	if errors.Is(err, tea.ErrProgramKilled) || errors.Is(err, tea.ErrInterrupted) {
		err = nil // by a signal
	}
	return err
}

// A topModel is the state of pmcp top. Its methods run one after the other.
type topModel struct {
	ctx           context.Context
	s             *screen
	r             *reader
	width, height int
	shown         topView
	history       map[int64][]process.Usage // by run id, the newest last
	selected      int
}

// A topView is what one measurement saw. It is a message of the program.
type topView struct {
	at   time.Time
	runs []project.Run
	log  []string // the end of the selected process's log
	err  error
}

func (m *topModel) Init() tea.Cmd { return m.measure() }

// measure returns the command that looks once.
func (m *topModel) measure() tea.Cmd {
	selected, rows := m.selected, max(0, m.height/2)
	return func() tea.Msg {
		v := topView{at: time.Now()}
		q := project.ListRequest{Only: m.s.where.project != ""}
		if m.s.where.all {
			q.Scope = "all"
		}
		if v.runs, _, v.err = m.r.project.List(m.ctx, q); v.err != nil {
			return v
		}
		if selected < len(v.runs) && rows > 0 {
			v.log, v.err = m.r.lastLines(m.ctx, &v.runs[selected], rows)
		}
		return v
	}
}

// lastLines returns the last lines of a run.
func (r *reader) lastLines(ctx context.Context, run *project.Run, n int) (lines []string, err error) {
	if run.RunID == 0 {
		return nil, nil
	}
	page, err := r.store.Read(ctx, logstore.Query{Runs: []int64{run.RunID}, Newest: true, Limit: n})
	if err != nil {
		return nil, err
	}
	for i := range page.Lines {
		lines = append(lines, page.Lines[i].At.Local().Format(time.TimeOnly)+" "+line.Visible(page.Lines[i].Text))
	}
	return lines, nil
}

// topTick asks for the next measurement.
type topTick struct{}

func (m *topModel) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	switch msg := msg.(type) {
	case tea.WindowSizeMsg:
		m.width, m.height = msg.Width, msg.Height
	case topTick:
		return m, m.measure()
	case topView:
		m.add(msg)
		return m, tea.Tick(topInterval, func(time.Time) tea.Msg { return topTick{} })
	case tea.KeyPressMsg:
		switch msg.String() {
		case "q", "esc", "ctrl+c":
			return m, tea.Quit
		case "up", "k":
			m.selected = max(0, m.selected-1)
		case "down", "j":
			m.selected = max(0, min(len(m.shown.runs)-1, m.selected+1))
		default:
			return m, nil
		}
		m.shown.log = nil // the next measurement brings that of the other process
	}
	return m, nil
}

// add keeps a measurement.
func (m *topModel) add(v topView) {
	m.shown, m.selected = v, max(0, min(m.selected, len(v.runs)-1))
	live := make(map[int64][]process.Usage, len(v.runs))
	for i := range v.runs {
		if id := v.runs[i].RunID; v.runs[i].MemoryBytes > 0 {
			all := append(m.history[id], v.runs[i].Usage)
			live[id] = all[max(0, len(all)-topHistory):]
		}
	}
	m.history = live
}

func (m *topModel) View() tea.View {
	var b strings.Builder
	t := &terminal{w: bufio.NewWriter(&b), colour: true, width: m.width}
	m.write(t)
	_ = t.flush() // a strings.Builder takes everything
	view := tea.NewView(strings.TrimSuffix(b.String(), "\n"))
	view.AltScreen = true
	return view
}

// write writes the screen: at most m.height lines of m.width columns.
func (m *topModel) write(t *terminal) {
	live := 0
	for i := range m.shown.runs {
		if m.shown.runs[i].State.Live() {
			live++
		}
	}
	where := m.r.dir
	if where == "" {
		where = "all projects"
	}
	head := fmt.Sprintf("%s  %d of %d live  ↑↓ select  q quit", where, live, len(m.shown.runs))
	if m.shown.err != nil {
		head = m.shown.err.Error()
	}
	_ = t.println(t.paint(dim, cut(line.Visible(head), max(1, m.width))))
	if len(m.shown.runs) == 0 {
		return
	}
	room := max(1, m.height-3) // without the head, the titles and the line above the log
	rows := min(len(m.shown.runs), max(1, room/2))
	first := max(0, min(m.selected-rows/2, len(m.shown.runs)-rows))
	var table [][]cell
	for i := first; i < first+rows; i++ {
		table = append(table, m.row(&m.shown.runs[i], i == m.selected))
	}
	_ = t.table([]column{
		{title: ""}, {title: "NAME"}, {title: "STATE"}, {title: "PORTS", rank: 1}, {title: "CPU %CORE", rank: 2, right: true}, {title: "", rank: 4},
		{title: "MEMORY", rank: 3, right: true}, {title: "", rank: 5}, {title: "SINCE", rank: 6, right: true}, {title: "COMMAND"},
	}, table)
	left := m.height - 3 - rows
	if left <= 0 {
		return
	}
	_ = t.println(t.paint(dim, cut("─── "+m.name(m.selected)+" "+strings.Repeat("─", max(0, m.width)), max(1, m.width))))
	for _, l := range m.shown.log[max(0, len(m.shown.log)-left):] {
		_ = t.println(cut(strings.ReplaceAll(l, "\t", "    "), max(1, m.width)))
	}
}

func (m *topModel) name(i int) string {
	run := &m.shown.runs[i]
	return m.r.name(m.ctx, run.Project, run.Spec.Name)
}

// row returns the row of a run.
func (m *topModel) row(run *project.Run, selected bool) []cell {
	cells := m.s.cells(run, m.r.name(m.ctx, run.Project, run.Spec.Name), m.shown.at)
	mark := " "
	if selected {
		mark = "▶"
	}
	var cpu, memory []float64
	for _, u := range m.history[run.RunID] {
		cpu, memory = append(cpu, u.CPUPercent), append(memory, float64(u.MemoryBytes))
	}
	return []cell{
		{mark, bold}, cells[0], cells[1], cells[4], cells[5], {spark(cpu, 100), cyan}, cells[6], {spark(memory, 0), cyan}, cells[7], cells[8],
	}
}

// spark draws the latest values as a line of blocks; the highest value, or most if that
// is higher, is a full block.
func spark(values []float64, most float64) string {
	const blocks = "▁▂▃▄▅▆▇█"
	values = values[max(0, len(values)-sparkWidth):]
	for _, v := range values {
		most = max(most, v)
	}
	var b strings.Builder
	for _, v := range values {
		i := 0
		if most > 0 {
			i = min(7, int(v/most*8))
		}
		b.WriteString(string([]rune(blocks)[i]))
	}
	return b.String()
}
