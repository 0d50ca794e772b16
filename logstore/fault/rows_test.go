package fault

import (
	"bytes"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

// TestRowFilterLosesNothing checks with all recordings, as they are and with damaged lines, that
// the faults are the same as if each row examined each line.
func TestRowFilterLosesNothing(t *testing.T) {
	files, err := filepath.Glob("testdata/*/*.txt")
	if err != nil || len(files) < 400 {
		t.Fatalf("got %d recordings, %v, want at least 400", len(files), err)
	}
	each := newRowTable(certainRows, uncertainRows)
	for _, page := range each {
		for b := range page.byFirst {
			page.byFirst[b], page.byLast[b] = 1<<len(page.all)-1, 1<<len(page.all)-1
		}
		for bit := range page.byWord {
			page.byWord[bit] = 1<<len(page.all) - 1
		}
		clear(page.literals)
	}
	inputs := map[string][]line{"first lines": firstLines(), "long lines": {{stream: 1, text: "no error" + strings.Repeat(" ", scanBytes) + "late at a.pl line 3."}}}
	for _, word := range keywords.words {
		for _, ending := range errorEndings {
			inputs["words"] = append(inputs["words"], line{text: "Late" + ending + ": " + word}, line{text: "done"})
		}
	}
	for _, file := range files {
		inputs[file] = readRecording(t, file)
	}
	for name, lines := range inputs {
		rnd := rand.New(rand.NewPCG(1, 2))
		for round := range 4 {
			var got, want []Fault
			filtered := allRows().newRecogniser(func(f Fault) { got = append(got, f) })
			unfiltered := each.newRecogniser(func(f Fault) { want = append(want, f) })
			for i, l := range lines {
				if round > 0 {
					l.text = damaged(rnd, l.text, lines[rnd.IntN(len(lines))].text)
				}
				if round > 1 {
					l.level = uint8(rnd.IntN(levelFatal + 1))
				}
				filtered.Line(int64(i+1), l.stream, l.level, []byte(l.text))
				unfiltered.Line(int64(i+1), l.stream, l.level, []byte(l.text))
			}
			filtered.End(1, "")
			unfiltered.End(1, "")
			if !reflect.DeepEqual(got, want) {
				t.Errorf("%s, round %d: got %d faults, want the %d without the filter:\n%+v\n%+v", name, round, len(got), len(want), got, want)
			}
		}
	}
}

// firstLines returns reports of which the recordings have no example.
func firstLines() (lines []line) {
	for text := range strings.Lines(`2026/01/05 10:00:00 [Recovery] 2026/01/05 - 10:00:00 panic recovered:
GET / HTTP/1.1

boom
/app/main.go:7 (0x51e2a0)
	main.f: panic("boom")

 panic: boom

 -> main.f(...)
 ->   /app/main.go:7

There were 2 failures:

1) ShopTest::testPrice
Failed asserting that 1 is 2.

/app/ShopTest.php:9

FAILURES!
2) ShopTest::testTax
Fatal error: Uncaught TypeError: no price in /app/a.php:3
Stack trace:
#0 /app/b.php(4): f()
  thrown in /app/a.php on line 3
Parse error: syntax error in /app/a.php on line 3
Recoverable fatal error: no string in /app/a.php on line 3
fail: Shop.Cart[0]
      no price

  1) Shop has a price
     Failure/Error: expect(price).to eq(3)

       expected: 3
            got: 2
     # ./shop_spec.rb:5:in 'block'
`) {
		lines = append(lines, line{stream: 1, level: levelError, text: strings.TrimSuffix(text, "\n")})
	}
	return lines
}

func readRecording(t *testing.T, file string) (lines []line) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for l := range bytes.Lines(text) {
		if l = bytes.TrimSuffix(l, []byte("\n")); len(l) > 2 && l[2] == '|' {
			lines = append(lines, line{stream: uint8(bytes.IndexByte([]byte("oe"), l[0])), level: l[1] - '0', text: string(l[3:])})
		}
	}
	return lines
}

// damaged returns a line of which a part is replaced by a part of another line, or whose
// indentation is changed.
func damaged(rnd *rand.Rand, text, other string) string {
	at := rnd.IntN(len(text) + 1)
	switch rnd.IntN(6) {
	case 0:
		return text[:at] + other
	case 1:
		return other[:min(len(other), rnd.IntN(12))] + text
	case 2:
		return text[:at]
	case 3:
		return "    "[rnd.IntN(5):] + strings.TrimLeft(text, " \t")
	default:
		return text
	}
}
