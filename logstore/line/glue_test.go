package line

import (
	"slices"
	"strings"
	"testing"
)

// TestWordsAreNotGlued checks, for how programs place text on a terminal, that words which stand apart on the screen
// stand apart in the lines. The words are those of the screen.
func TestWordsAreNotGlued(t *testing.T) {
	for name, c := range map[string]struct{ printed, words string }{
		"curl":               {"  % Total    % Received\r\n  0  1000    0     0\r100  1000  100  1000\r\n", "% Total Received 0 1000 100"},
		"wget":               {"index.html\x1b[20G  0%[  ]\rindex.html\x1b[20G100%[==>]  1.2K\n", "index.html 100%[==>] 1.2K 0%[ ]"},
		"pip":                {"Downloading\x1b[15Gwheel\r\x1b[2KInstalling\x1b[15Gwheel\n", "Installing wheel Downloading"},
		"npm":                {"\x1b[1G\x1b[0K⠙\x1b[1G\x1b[0K⠹\x1b[1G\x1b[0K\nadded\x1b[8G12\x1b[12Gpackages\n", "added 12 packages ⠙ ⠹"},
		"yarn":               {"[1/4]\x1b[8GResolving...\x1b[2K\x1b[1G[2/4]\x1b[8GFetching...\n", "[2/4] Fetching... [1/4] Resolving..."},
		"pnpm":               {"Progress:\x1b[12Gresolved\x1b[22G1\x1b[1G\x1b[JProgress:\x1b[12Gresolved\x1b[22G9\n", "Progress: resolved 9 1"},
		"docker pull":        {"a1:\x1b[5GWaiting\nb2:\x1b[5GWaiting\n\x1b[2A\x1b[2K\ra1:\x1b[5GDone\x1b[2B\r", "a1: b2: Waiting Done"},
		"buildkit":           {"\x1b[?25l\x1b[0G[+]\x1b[5GBuilding\x1b[20G1.0s\n => load\n\x1b[2A\x1b[0G[+]\x1b[5GBuilding\x1b[20G2.0s\x1b[K\n\x1b[1B\x1b[?25h", "[+] Building 1.0s 2.0s => load"},
		"listr":              {"⠋ lint\n⠋ test\n\x1b[2A\x1b[J✔ lint\n⠙ test\n\x1b[2A\x1b[J✔ lint\n✔ test\n", "✔ ⠋ ⠙ lint test"},
		"ink":                {"frame\x1b[10Gone\n\x1b[2K\x1b[1A\x1b[2K\x1b[Gframe\x1b[10Gtwo\n", "frame one two"},
		"ora":                {"\x1b[?25l⠋ loading\x1b[2K\x1b[1G⠙ loading\x1b[2K\x1b[1G\x1b[?25h✔ loaded\n", "⠋ ⠙ ✔ loading loaded"},
		"cli-progress":       {"\x1b[0G[==  ]\x1b[0K\x1b[8G50%\x1b[0G[====]\x1b[0K\x1b[8G100%\n", "[== ] [====] 50% 100%"},
		"inquirer":           {"? Name:\x1b[9Gshop\x1b[1G\x1b[K? Name:\x1b[9Gshop\n? Kind:\n> a\n  b\n\x1b[2A\x1b[J  a\n> b\n", "? Name: Kind: shop > a b"},
		"create-vite":        {"\x1b[2J\x1b[HScaffolding\x1b[14Gproject\x1b[2;1HDone.\n", "Scaffolding project Done."},
		"vite clears":        {"building\x1b[2J\x1b[3J\x1b[HVITE\x1b[6Gready\n", "building VITE ready"},
		"tsc watch":          {"Starting\x1bcFound\x1b[7G2\x1b[9Gerrors\n", "Starting Found 2 errors"},
		"jest watch":         {"RUNS a\x1b[999D\x1b[KPASS\x1b[6Ga\x1b[2J\x1b[HTests:\x1b[9G1\n", "RUNS a PASS Tests: 1"},
		"vitest":             {" RUN  v3\n\n\x1b[1A\x1b[K ✓ a.test.ts\x1b[15G(2)\n", "RUN v3 ✓ a.test.ts (2)"},
		"mocha":              {"\x1b[?25l  ․\x1b[1C․\x1b[1C․\x1b[?25h\n3 passing\n", "․ 3 passing"},
		"turbo":              {"web:build\x1b[40GRUN\x1b[1Gapi:build\x1b[40GRUN\n", "web:build api:build RUN"},
		"nx":                 {"\x1b[2K   ✔  run\x1b[12Gshop:build\x1b[1A\x1b[2K\n", "✔ run shop:build"},
		"cargo":              {"   Compiling a\r\x1b[K    Building [=>  ] 1/2\r\x1b[K    Finished\x1b[15Gdev\n", "Compiling Building Finished a [=> ] 1/2 dev"},
		"rustup":             {"info:\x1b[8Gdownloading\x1b[2K\rinfo:\x1b[8Ginstalling\n", "info: downloading installing"},
		"gradle":             {"<===--> 50%\x1b[1B\x1b[1A\x1b[2K> :compile\x1b[15GUP-TO-DATE\n", "<===--> 50% > :compile UP-TO-DATE"},
		"apt":                {"\r0%\x1b[5G[Working]\r\x1b[KReading\x1b[10Glists...\x1b[20GDone\n", "0% [Working] Reading lists... Done"},
		"dnf":                {"(1/2):\x1b[10Ga.rpm\x1b[30G12kB/s\r\n", "(1/2): a.rpm 12kB/s"},
		"brew":               {"==>\x1b[5GPouring\x1b[13Ga\x1b[K\n", "==> Pouring a"},
		"git clone":          {"remote:\x1b[10GCounting\x1b[20Gobjects\x1b[K\rremote:\x1b[10GTotal\x1b[17G9\x1b[K\n", "remote: Counting objects Total 9"},
		"rsync":              {"file\n   1,024 50%\r   2,048 100%\x1b[20G1.0MB/s\n", "file 1,024 2,048 50% 100% 1.0MB/s"},
		"ffmpeg":             {"frame=\x1b[8G10\x1b[12Gfps=\x1b[17G5\rframe=\x1b[8G20\x1b[12Gfps=\x1b[17G5\n", "frame= 10 20 fps= 5"},
		"alternate screen":   {"menu\x1b[?1049h\x1b[Hdialog\x1b[?1049lError:\x1b[8Gdeploy\x1b[15Gfailed\n", "menu dialog Error: deploy failed"},
		"clear and home":     {"frame A\x1b[2J\x1b[HFound 2 errors\n", "frame A Found 2 errors"},
		"less":               {"\x1b[?1h\x1b=\rline\x1b[10Gone\x1b[m\r\n(END)\x1b[K\r\x1b[K\x1b[?1l\x1b>", "line one (END)"},
		"top":                {"\x1b[H\x1b[2JPID\x1b[8GUSER\x1b[2;1H12\x1b[8Groot\x1b[3;1H13\x1b[8Gme\n", "PID USER 12 13 root me"},
		"a table by columns": {"NAME\x1b[20GSTATE\x1b[30GPORT\nweb\x1b[20Gup\x1b[30G3000\n", "NAME STATE PORT web up 3000"},
		"moves right":        {"left\x1b[10Cright\x1b[3Cend\n", "left right end"},
		"moves by row":       {"one\x1b[Etwo\x1b[Ethree\n", "one two three"},
		"next line":          {"one\x1bEtwo\x1bDthree\n", "one two three"},
		"saved cursor":       {"\x1b7status\x1b8\x1b[Kdone\x1b[10Gall\n", "status done all"},
		"scroll region":      {"\x1b[1;23rlog line\x1b[24;1Hprogress\x1b[12G50%\x1b[r\n", "log line progress 50%"},
		"tabs":               {"a\tb\x1b[Ic\n", "a b c"},
		"backspace":          {"10%\b\b\b20%\b\b\b30%\x1b[6Gdone\n", "10% 20% 30% done"},
	} {
		r := &recording{parts: []part{{text: c.printed}}}
		words := strings.Fields(c.words)
		for cut := range 4 {
			for _, l := range r.play(cut) {
				for word := range strings.FieldsSeq(l) {
					if !slices.Contains(words, strings.TrimSuffix(word, "…")) {
						t.Errorf("%s, in parts of %d: got %q in %q, want only %q", name, cut, word, l, words)
					}
				}
			}
		}
	}
}
