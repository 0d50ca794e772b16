package main

import (
	"strings"
	"testing"
)

// TestFlakyTestsAreNamed reads the events of a run and its re-run: only a test that failed and then passed counts.
func TestFlakyTestsAreNamed(t *testing.T) {
	const events = `{"Action":"start","Package":"p"}
{"Action":"run","Package":"p","Test":"TestGood"}
{"Action":"pass","Package":"p","Test":"TestGood"}
{"Action":"run","Package":"p","Test":"TestChance"}
{"Action":"run","Package":"p","Test":"TestChance/sub"}
{"Action":"output","Package":"p","Test":"TestChance/sub","Output":"got 1, want 2\n"}
{"Action":"fail","Package":"p","Test":"TestChance/sub"}
{"Action":"fail","Package":"p","Test":"TestChance"}
{"Action":"run","Package":"p","Test":"TestBad"}
{"Action":"fail","Package":"p","Test":"TestBad"}
{"Action":"fail","Package":"p"}
{"Action":"run","Package":"p","Test":"TestChance"}
{"Action":"output","Package":"p","Test":"TestChance","Output":"fine\n"}
{"Action":"pass","Package":"p","Test":"TestChance"}
{"Action":"run","Package":"p","Test":"TestBad"}
{"Action":"fail","Package":"p","Test":"TestBad"}
`
	flaky, err := read(strings.NewReader(events))
	if err != nil || len(flaky) != 1 || flaky[0].name != "p.TestChance" || flaky[0].failure != "got 1, want 2\n" {
		t.Errorf("got %+v, %v, want only p.TestChance with its failure", flaky, err)
	}
	if _, err := read(strings.NewReader("FAIL\n")); err == nil {
		t.Error("got no error for what is no event, want one")
	}
}
