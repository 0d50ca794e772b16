package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/spf13/cobra"

	"pmcp/logstore"
	"pmcp/process"
	"pmcp/server/project"
)

const (
	topInterval = time.Second // between two measurements
	topHistory  = 60          // measurements that are kept of each process
	topErrors   = 10 * time.Minute
	maxMoves    = 8   // that wait: a key that is held repeats faster than the log is read
	maxTyped    = 200 // characters of a text
)

// topKeys are the keys of pmcp top.
const topKeys = `↑ ↓ j k        select a process
PgUp PgDn      scroll its log; Ctrl-U Ctrl-D by half
Home g End G   its oldest line; its end, which is followed
/ text Enter   search the log
n N            the next line found, the one before
e E            the next error, the one before
Tab            errors of this run in place of the log
w              wrap long lines
f text Enter   only processes with this in their names
s              stop it (asks)
r              restart it, or start what has ended (asks)
Esc            end a search, a filter, a question
? q            this help, quit`

func (s *screen) topCommand() *cobra.Command {
	return &cobra.Command{
		Use: "top", Short: "Watch processes with their errors and log; stop and restart them", Args: takesNone,
		Long:    "Shows the processes, what is wrong first, and errors and log of the selected one, once a second. Keys:\n\n" + topKeys,
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
	reading, stop := context.WithCancel(ctx)
	m := &topModel{ctx: ctx, reads: reading, s: s, r: r, history: make(map[int64][]process.Usage)}
	_, err = tea.NewProgram(m, tea.WithContext(ctx), tea.WithOutput(os.Stdout)).Run()
	stop()
	if m.acting != "" && ctx.Err() == nil {
		s.complain("pmcp: " + m.acting)
	}
	m.work.Lock() // once a stop or start that was asked for is performed; Ctrl-C cancels it
	if errors.Is(err, tea.ErrProgramKilled) || errors.Is(err, tea.ErrInterrupted) {
		err = nil // by a signal
	}
	return err
}

// A topModel is the state of pmcp top. Its methods run one after the other.
type topModel struct {
	ctx, reads    context.Context // of the command; of what reads, which ends with the screen
	s             *screen
	r             *reader
	work          sync.RWMutex // held to read by what runs beside the program
	width, height int
	shown         topView
	history       map[int64][]process.Usage // by run id, the newest last
	selected      identity
	at            int // the place of the selected process when it was last seen
	first         int // the first row of the table that is shown
	filter        string

	log     topLog
	moves   []move // wait for the read in progress
	reading bool   // of the log
	fits    int    // how many lines the screen last had room for

	found   string // the text that was searched last
	prompt  *prompt
	note    string // the outcome of the last key
	acting  string // what is being done to a process
	errors  bool   // the errors are shown in place of the log
	wrap    bool
	helping bool
}

// A prompt asks for a text or, with yes, for a confirmation.
type prompt struct {
	text  string // what is asked, or what stands before the text
	typed string
	yes   func() tea.Cmd
	enter func(typed string) tea.Cmd
}

// A topView is what one measurement saw. It is a message of the program.
type topView struct {
	at     time.Time
	runs   []project.Run // in the order of the table
	ranks  map[identity]int
	faults map[identity]recentFaults
	err    error
}

// recentFaults are the kinds of errors of one process in the time topErrors.
type recentFaults struct {
	kinds  int
	latest logstore.Fault
}

func (m *topModel) Init() tea.Cmd { return m.measure() }

// run returns the command that calls f, for which top waits.
func (m *topModel) run(f func() tea.Msg) tea.Cmd {
	return func() tea.Msg {
		m.work.RLock()
		defer m.work.RUnlock()
		return f()
	}
}

// measure returns the command that looks once.
func (m *topModel) measure() tea.Cmd {
	return m.run(func() tea.Msg { return m.view() })
}

// view looks once.
func (m *topModel) view() topView {
	v := topView{at: time.Now()}
	q := project.ListRequest{Only: m.s.where.project != ""}
	if m.s.where.all {
		q.Scope = "all"
	}
	if v.runs, _, v.err = m.r.project.List(m.reads, q); v.err != nil {
		return v
	}
	v.ranks = make(map[identity]int, len(v.runs))
	for i := range v.runs {
		v.ranks[identityOf(&v.runs[i])] = rankOf(&v.runs[i], v.at)
	}
	slices.SortFunc(v.runs, func(a, b project.Run) int {
		return cmp.Or(cmp.Compare(v.ranks[identityOf(&a)], v.ranks[identityOf(&b)]), cmp.Compare(a.Spec.Name, b.Spec.Name), cmp.Compare(a.Project, b.Project))
	})
	faults, _, err := m.r.Faults(m.reads, logstore.FaultQuery{Project: m.r.dir, Since: v.at.Add(-topErrors), Resolved: new(false), SkipFlush: true, Limit: maxErrors})
	v.err, v.faults = err, make(map[identity]recentFaults)
	for i := range faults { // the latest first
		id := identity{faults[i].Project, faults[i].Name}
		recent, known := v.faults[id]
		if !known {
			recent.latest = faults[i]
		}
		recent.kinds++
		v.faults[id] = recent
	}
	return v
}

// isWrong is the rank of what needs a look: it comes first.
const isWrong = 0

// rankOf returns where a run stands in the table: what is wrong comes first, what has ended long
// ago last.
func rankOf(run *project.Run, now time.Time) int {
	const long = time.Hour
	live := run.State.Live() || run.State == process.Backoff
	switch {
	case run.State == process.Backoff, live && (run.WhyNotReady() != "" || run.HealthText() != "" || run.Stale() != ""), run.EndedBadly() && now.Sub(run.EndedAt) < long:
		return isWrong
	case live:
		return 1
	case !run.EndedAt.IsZero() && now.Sub(run.EndedAt) < long:
		return 2
	default:
		return 3
	}
}

// topTick asks for the next measurement.
type topTick struct{}

// topDone is the outcome of a stop, a restart or a start, and what was there after it.
type topDone struct {
	text string
	view topView
}

func (m *topModel) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	switch msg := msg.(type) {
	case tea.WindowSizeMsg:
		m.width, m.height = msg.Width, msg.Height
		return m, m.look()
	case topTick:
		return m, m.measure()
	case topView:
		m.add(msg)
		return m, tea.Batch(m.look(), tea.Tick(topInterval, func(time.Time) tea.Msg { return topTick{} }))
	case topLog:
		return m, m.addLog(msg)
	case topDone:
		m.acting, m.note = "", msg.text
		m.add(msg.view)
		return m, m.look()
	case tea.PasteMsg:
		if m.prompt != nil && m.prompt.enter != nil {
			m.prompt.add(msg.Content)
		}
	case tea.KeyPressMsg:
		return m, m.press(msg)
	}
	return m, nil
}

// add keeps a measurement.
func (m *topModel) add(v topView) {
	switch {
	case v.at.Before(m.shown.at): // it was slower than a later one
		return
	case v.err != nil:
		m.shown.err = v.err // the last measurement stays
		return
	}
	m.shown = v
	live := make(map[int64][]process.Usage, len(v.runs))
	for i := range v.runs {
		if id := v.runs[i].RunID; v.runs[i].MemoryBytes > 0 {
			all := append(m.history[id], v.runs[i].Usage)
			live[id] = all[max(0, len(all)-topHistory):]
		}
	}
	m.history = live
	m.choose(m.place())
}

// rows returns the runs of the table.
func (m *topModel) rows() (rows []*project.Run) {
	for i := range m.shown.runs {
		if run := &m.shown.runs[i]; strings.Contains(strings.ToLower(run.Spec.Name), strings.ToLower(m.filter)) {
			rows = append(rows, run)
		}
	}
	return rows
}

// place returns the place of the selected process in the table, or that which it had if it is gone.
func (m *topModel) place() int {
	rows := m.rows()
	if i := slices.IndexFunc(rows, func(run *project.Run) bool { return identityOf(run) == m.selected }); i >= 0 {
		return i
	}
	return max(0, min(m.at, len(rows)-1))
}

// choose selects the process at a place of the table.
func (m *topModel) choose(at int) {
	rows := m.rows()
	if m.at = max(0, min(at, len(rows)-1)); len(rows) == 0 {
		return
	}
	if id := identityOf(rows[m.at]); id != m.selected {
		m.selected, m.log, m.moves = id, topLog{of: id}, nil
	}
}

// current returns the run of the selected process, or nil.
func (m *topModel) current() *project.Run {
	if rows := m.rows(); len(rows) > 0 {
		return rows[m.place()]
	}
	return nil
}

// look returns the command that performs moves in the log of the selected process and reads it. One
// read is in progress at a time; what comes while it is waits for it.
func (m *topModel) look(moves ...move) tea.Cmd {
	run := m.current()
	if run == nil || m.height == 0 {
		return nil
	}
	m.moves = append(m.moves, moves...)
	m.moves = m.moves[:min(len(m.moves), maxMoves)]
	if m.reading {
		return nil
	}
	l, moves, fits, rows, began := m.log, m.moves, max(1, m.fits), m.height, run.StartedAt
	m.reading, m.moves = true, nil
	return m.run(func() tea.Msg { return l.read(m.reads, m.r, moves, fits, rows, began) })
}

// addLog keeps what was read, and reads again if that was another process or moves wait.
func (m *topModel) addLog(l topLog) tea.Cmd {
	m.reading = false
	if l.of == m.selected {
		m.log = l
		if l.note != "" {
			m.note = l.note
		}
	}
	if l.of != m.selected || len(m.moves) > 0 {
		return m.look()
	}
	return nil
}

// press acts on a key.
func (m *topModel) press(key tea.KeyPressMsg) tea.Cmd {
	m.note = ""
	name := key.String()
	switch {
	case name == "ctrl+c":
		return tea.Quit
	case m.prompt != nil:
		return m.answer(name, key.Text)
	case m.helping:
		m.helping = false
		return nil
	}
	switch name {
	case "q":
		return tea.Quit
	case "esc":
		m.found, m.filter = "", ""
		return m.look(toEnd)
	case "?":
		m.helping = true
	case "up", "k":
		m.choose(m.place() - 1)
		return m.look()
	case "down", "j":
		m.choose(m.place() + 1)
		return m.look()
	case "tab":
		m.errors = !m.errors
	case "w":
		m.wrap = !m.wrap
	case "s":
		m.askToStop()
	case "r":
		m.askToRestart()
	case "f":
		m.prompt = &prompt{text: "only names with: ", enter: func(typed string) tea.Cmd {
			m.filter = typed
			m.choose(m.place())
			return m.look()
		}}
	case "/":
		m.errors = false
		m.prompt = &prompt{text: "/", enter: func(typed string) tea.Cmd {
			if m.found = typed; typed == "" {
				return nil
			}
			return m.look(seekText(typed, false))
		}}
	default:
		return m.scroll(name)
	}
	return nil
}

// scroll acts on a key that moves in the log.
func (m *topModel) scroll(key string) tea.Cmd {
	page := max(1, m.fits-1)
	to := map[string]move{
		"pgup": scroll(-page), "pgdown": scroll(page), "ctrl+u": scroll(-max(1, page/2)), "ctrl+d": scroll(max(1, page/2)),
		"home": toStart, "g": toStart, "end": toEnd, "G": toEnd, "e": seekError(false), "E": seekError(true),
	}[key]
	switch {
	case to != nil:
	case key != "n" && key != "N":
		return nil
	case m.found == "":
		m.note = "/ searches"
		return nil
	default:
		to = seekText(m.found, key == "N")
	}
	m.errors = false
	return m.look(to)
}

// answer acts on a key while a prompt is shown.
func (m *topModel) answer(name, text string) tea.Cmd {
	p := m.prompt
	switch {
	case name == "esc":
		m.prompt = nil
	case p.yes != nil: // any other key than y and Enter is a no
		if m.prompt = nil; name == "y" || name == "enter" {
			return p.yes()
		}
	case name == "enter":
		m.prompt = nil
		return p.enter(p.typed)
	case name == "backspace" && p.typed == "":
		m.prompt = nil
	case name == "backspace":
		typed := []rune(p.typed)
		p.typed = string(typed[:len(typed)-1])
	default:
		p.add(text)
	}
	return nil
}

// add adds typed text, in one line.
func (p *prompt) add(text string) {
	typed := []rune(p.typed + strings.Map(func(c rune) rune {
		if c < ' ' {
			return -1
		}
		return c
	}, text))
	p.typed = string(typed[:min(len(typed), maxTyped)])
}

func (m *topModel) askToStop() {
	if run := m.current(); run != nil {
		if run.Owner == nil {
			m.note = m.name(run) + " is not running"
			return
		}
		m.ask(run, action{verb: "stop", process: "stop_process"})
	}
}

func (m *topModel) askToRestart() {
	switch run := m.current(); {
	case run == nil:
	case run.Owner != nil:
		m.ask(run, action{verb: "restart", process: "restart_process"})
	default:
		m.ask(run, action{verb: "start", process: "start_process", starts: true})
	}
}

// ask asks whether to do something to a process, and then has it done, one thing at a time.
func (m *topModel) ask(run *project.Run, a action) {
	if m.acting != "" {
		m.note = "wait: " + m.acting
		return
	}
	t := target{name: m.r.address(m.ctx, run.Project, run.Spec.Name)}
	what := a.verb + " " + m.name(run)
	m.prompt = &prompt{text: what + "? y n", yes: func() tea.Cmd {
		m.acting = what + " …"
		return m.run(func() tea.Msg {
			text := a.perform(m.ctx, t, m.s.where.project)
			return topDone{text, m.view()}
		})
	}}
}

// perform performs an action on one process and returns its outcome in one line.
func (a action) perform(ctx context.Context, t target, where string) string {
	own, err := startSession(ctx, a.client(), io.Discard) // the terminal is the screen's
	if err != nil {
		return err.Error()
	}
	defer func() { _ = own.Close() }()
	text, err := a.call(ctx, own, t, where)
	if err != nil {
		text = fmt.Sprint(err)
	}
	first, _, _ := strings.Cut(text, "\n")
	return first
}
