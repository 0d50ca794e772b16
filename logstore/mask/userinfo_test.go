package mask

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// TestUserinfoAgreesWithSimpleSearch checks that findUserinfo finds the same passwords as a simple
// search that examines each @ separately, going back to the start of its URL.
func TestUserinfoAgreesWithSimpleSearch(t *testing.T) {
	each := func(text []byte) (spans []span) {
		for at := range text {
			from := at
			for from > 0 && at-from < maxUserinfo && isUserinfo[text[from-1]] {
				from--
			}
			if text[at] != '@' || !strings.HasSuffix(string(text[:from]), "://") {
				continue
			}
			secret := text[from:at]
			label := "credentials"
			if _, password, ok := strings.Cut(string(secret), ":"); ok {
				secret, label = []byte(password), "password"
			} else if len(secret) < minWord || !mixed(secret) {
				continue
			}
			if !isStandIn(secret) && (label == "credentials" || !isPort(secret)) {
				spans = append(spans, span{from: at - len(secret), to: at, label: label})
			}
		}
		return spans
	}
	all := func(text []byte) (spans []span) {
		for done := 0; ; {
			at := strings.IndexByte(string(text[done:]), '@')
			if at < 0 {
				return spans
			}
			before := done
			if done, spans = findUserinfo(text, done, done+at, spans); done <= before+at || done < len(text) && isUserinfo[text[done]] {
				t.Fatalf("%s: got %d as the end of what was checked, want progress", text, done)
			}
		}
	}
	rnd := rand.New(rand.NewPCG(3, 4))
	pieces := []string{"://", "@", ":", "a", "1", "*", "$", "$NAME", "${", "/", " ", "{{", "%", "80?", "token1token2token3abc", strings.Repeat("y", 250)}
	for range 4_000 {
		var text []byte
		for range 1 + rnd.IntN(12) {
			text = append(text, pieces[rnd.IntN(len(pieces))]...)
		}
		if got, want := mergeSpans(all(text)), mergeSpans(each(text)); !slices.Equal(got, want) {
			t.Fatalf("%s: got %v, want %v", text, got, want)
		}
	}
	if end, _ := findUserinfo([]byte(strings.Repeat("@", 10_000)), 0, 0, nil); end != 10_000 {
		t.Errorf("got %d as the end of a run of @, want its end: it would be checked again", end)
	}
}
