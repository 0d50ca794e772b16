package project

import "testing"

// TestOwnerIsNamedWhereItFits checks where the text of another window's answer names its owner.
func TestOwnerIsNamedWhereItFits(t *testing.T) {
	run := &Run{Owner: &Owner{PID: 7, Client: "editor"}}
	const owned = "owned by the pmcp server 7 editor"
	for want, a := range map[string]OwnerAnswer{
		"web: running, " + owned + "\nnext_cursor: A":    {Text: "web: running\nnext_cursor: A"},
		"web: running, " + owned:                         {Text: "web: running"},
		owned + "\n[process output]\n1. add: ok":         {Text: "[process output]\n1. add: ok"},
		"web: EOF; it was not repeated\n" + owned:        {Text: "web: EOF; it was not repeated", IsError: true},
		"web: EOF\n" + owned + "\nweb: crashed\nhint: x": {Text: "web: EOF\nweb: crashed\nhint: x", IsError: true},
	} {
		if got := a.named(run).Text; got != want {
			t.Errorf("got  %q\nwant %q", got, want)
		}
	}
}
