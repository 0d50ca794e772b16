package fault_test

import (
	"fmt"
	"testing"
)

// TestGoTestMessageIsReadBelowPosition checks that the message of a failed Go test is found if it
// starts below the line with the position.
func TestGoTestMessageIsReadBelowPosition(t *testing.T) {
	for _, m := range []misreadCase{
		{"testify", []string{
			"5--- FAIL: TestX (0.00s)", "5    x_test.go:10: ",
			"5        \tError Trace:\t/src/x_test.go:10", "5        \t            \t/src/helper.go:3",
			"5        \tError:      \tNot equal: ", "5        \t            \texpected: 1", "5        \t            \tactual  : 2",
			"5        \t            \t", "5        \t            \tDiff:", "5        \t            \t-1", "5        \t            \t+2",
			"5        \tTest:       \tTestX", "5        \tMessages:   \tthe sum", "5FAIL",
		}, []string{"FAIL|TestX: Not equal:\nexpected: 1\nactual  : 2\nthe sum|x_test.go:10|12"}},
		{"a line break first", []string{"5--- FAIL: TestX (0.00s)", "5    x_test.go:10: ", "5        want a:\tb", "5        \tgot c", "5FAIL"},
			[]string{"FAIL|TestX: want a:\tb\ngot c|x_test.go:10|4"}},
		{"a parent that failed by itself", []string{
			"5--- FAIL: TestX (0.00s)", "5    --- FAIL: TestX/sub (0.00s)", "5        x_test.go:5: one", "5    x_test.go:10: two", "5        and more", "5FAIL",
		}, []string{"FAIL|TestX: two\nand more|x_test.go:10|3", "FAIL|TestX/sub: one|x_test.go:5|2"}},
		{"a parent that failed by its subtest", []string{
			"5--- FAIL: TestX (0.00s)", "5    x_test.go:10: ", "5    --- FAIL: TestX/sub (0.00s)", "5        x_test.go:5: ", "5            one", "5FAIL",
		}, []string{"FAIL|TestX/sub: one|x_test.go:5|3"}},
		{"verbose", []string{
			"0=== RUN   TestX", "0    x_test.go:10: ", "5        \tError:      \tFound 3 errors", "0        \t            \tof 9", "5        \tTest:       \tTestX",
			"0printed", "0        by the test", "5--- FAIL: TestX (0.00s)", "0=== RUN   TestY", "0    x_test.go:20: log", "0        TypeError: expected", "0--- PASS: TestY (0.00s)", "5FAIL",
		}, []string{"FAIL|TestX: Found 3 errors\nof 9|x_test.go:10|5"}},
		{"much is logged", append(manyLogs(40), "5--- FAIL: TestX (0.00s)", "5FAIL"),
			[]string{"FAIL|TestX: log 37\nmore 0\nmore 1\nmore 2\nmore 3\nmore 4\nmore 5\nmore 6\nlog 38\nmore 0\nmore 1\nmore 2\nmore 3\nmore 4\nmore 5\nmore 6\nlog 39\nmore 0\nmore 1\nmore 2\nmore 3\nmore 4\nmore 5\nmore 6\nlast|x_test.go:99|26"}},
	} {
		m.run(t)
	}
}

func manyLogs(n int) []string {
	lines := []string{"0=== RUN   TestX"}
	for i := range n {
		lines = append(lines, fmt.Sprintf("0    x_test.go:%d: log %d", i, i))
		for j := range 7 {
			lines = append(lines, fmt.Sprintf("0        more %d", j))
		}
	}
	return append(lines, "0    x_test.go:99: last")
}
