package project

import (
	"strings"
	"testing"

	"pmcp/logstore/mask"
	"pmcp/process"
)

// TestCutSecretInBodyIsNotShown checks that a body that ends within a secret shows no part of it,
// even if the mask of another one brings its end into view.
func TestCutSecretInBodyIsNotShown(t *testing.T) {
	first, second := strings.Repeat("first-1", 100), strings.Repeat("second-2", 100)
	p := &Project{session: &session{o: Options{Mask: mask.New()}}}
	p.o.Mask.LearnEnv(map[string]string{"A_TOKEN": first, "B_TOKEN": second})
	body := `{"a":"` + first + `","b":"` + second
	r := &Run{Status: process.Status{HTTP: []process.HTTPAnswer{{Status: 200, Bytes: 2000, Body: body[:1000]}, {Status: 200, Bytes: 2000, Body: strings.Repeat(`{"id":7,"name":"tea"},`, 50)[:1000]}}}}
	got := p.HTTPAnswers(r)
	if strings.Contains(got[0].Body, "second") || !strings.Contains(got[0].Body, "[masked A_TOKEN]") {
		t.Errorf("got %s, want no part of a secret", got[0].Body)
	}
	if len(got[1].Body) < goodBody {
		t.Errorf("got %s, want the beginning of the body", got[1].Body)
	}
}
