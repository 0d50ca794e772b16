package proctest

import (
	"flag"
	"testing"
)

var long = flag.Bool("long", false, "run the tests of the long form too; .ci/long does")

// Long skips a test that belongs to the long form, which takes too long or loads the machine too much for every
// run, unless the flag -long is given. .ci/long finds the tests of each of its parts by their calls of Long.
func Long(t testing.TB, part string) {
	t.Helper()
	if !*long {
		t.Skip("long form: .ci/long " + part)
	}
}
