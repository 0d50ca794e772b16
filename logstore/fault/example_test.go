package fault_test

import (
	"fmt"
	"strings"

	"pmcp/logstore/fault"
)

const traceback = `listening on 8000
Traceback (most recent call last):
  File "/srv/shop/app.py", line 12, in <module>
    main()
  File "/srv/shop/app.py", line 8, in main
    price = prices["apple"]
KeyError: 'apple'`

// A Recogniser takes the lines of a run and emits each error once the error is complete.
func Example() {
	r := fault.New(func(f fault.Fault) {
		fmt.Printf("%s: %s at %s:%d, lines %d to %d\n", f.Type, f.Message, f.File, f.Line, f.FirstLine, f.LastLine)
	})
	for i, line := range strings.Split(traceback, "\n") {
		r.Line(int64(i+1), 1, 0, []byte(line))
	}
	r.End(1, "")
	// Output:
	// KeyError: 'apple' at /srv/shop/app.py:8, lines 2 to 7
}
