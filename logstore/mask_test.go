package logstore

import (
	"bytes"
	"context"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"pmcp/logstore/mask"
)

const (
	secret = "hunter2-is-my-token"
	pemKey = "MIIEowIBAAKCAQEAu1SU1LfVLPHCozMxH2Mo4lgOEePzNm0tRgeLezV6ffAt0gun"
)

func masker() *mask.Masker {
	m := mask.New()
	m.LearnEnv(map[string]string{"APP_TOKEN": secret})
	return m
}

// masking feeds parts to a stream that masks, and gives its lines; an empty part is silence.
func masking(parts ...string) []string {
	got := collected{}
	lines := masker().Lines()
	c := cleaner{whole: lines.Whole}
	out := maskedSink{&lines, &got}
	for _, p := range parts {
		if p == "" {
			c.silence(out)
		}
		c.feed([]byte(p), out)
	}
	c.finish(out)
	return got
}

// maskedSink masks as stream does.
type maskedSink struct {
	lines *mask.Lines
	to    lineSink
}

func (s maskedSink) line(text []byte, continuation, partial bool) {
	s.to.line(s.lines.Line(text), continuation, partial)
}

func TestMaskedPieces(t *testing.T) {
	const token = "ghp_16C7e42F292c6912E7710c838347Ae178B4a"
	for name, c := range map[string]struct{ in, want []string }{
		"whole":                {[]string{"a " + secret + " b\n"}, []string{"a [masked APP_TOKEN] b"}},
		"two reads":            {[]string{"a hunter2-is", "-my-token b\n"}, []string{"a [masked APP_TOKEN] b"}},
		"a pause within":       {[]string{"a hunter2-is", "", "-my-token b\n"}, []string{"a …", "+[masked APP_TOKEN] b"}},
		"a pause in a token":   {[]string{"a " + token[:9], "", token[9:] + "\nb\n"}, []string{"a …", "+[masked GitHub token]", "b"}},
		"a pause in a key":     {[]string{"a -----BEGIN PRIV", "", "ATE KEY-----\n" + pemKey + "\nb\n"}, []string{"a …", "+-----BEGIN PRIVATE KEY-----", "[masked private key]", "b"}},
		"a pause after dashes": {[]string{"a -----", "", " b\n"}, []string{"a -----…", "+ b"}},
		"two pauses":           {[]string{"hunter2", "", "-is-my", "", "-token", "", " b\n"}, []string{"[masked APP_TOKEN]…", "+ b"}},
		"a pause and the end":  {[]string{"a hunter2", ""}, []string{"a …", "+hunter2…"}},
		"colour within":        {[]string{"a hunter2\x1b[1m-is-my\x1b[0m-token b\n"}, []string{"a [masked APP_TOKEN] b"}},
		"redrawn":              {[]string{"10% " + secret + "\r20%\n"}, []string{"20%"}},
		"a prompt":             {[]string{"Password: ", "", "ok\n"}, []string{"Password: …", "+ok"}},
		"nothing but a prompt": {[]string{"hun", "", "t\n"}, []string{"hunt"}},
	} {
		t.Run(name, func(t *testing.T) {
			if got := masking(c.in...); strings.Join(got, "|") != strings.Join(c.want, "|") {
				t.Errorf("%q, want %q", got, c.want)
			}
		})
	}
}

// TestMaskedLongLines: wherever the bound of a piece goes through a secret, it is masked.
func TestMaskedLongLines(t *testing.T) {
	const token = "ghp_16C7e42F292c6912E7710c838347Ae178B4a"
	for _, hidden := range []string{secret, token, "Authorization: Bearer abcdef123456", "postgres://u:pass-1234@h", "-----BEGIN PRIVATE KEY-----\n" + pemKey, "-----BEGIN RSA PRIVATE KEY-----\\n" + pemKey + "\\n-----END RSA PRIVATE KEY-----"} {
		for before := maxLineBytes - len(hidden) - 2; before <= maxLineBytes+2; before++ {
			given := strings.Repeat("x ", before/2) + strings.Repeat("y", before%2) + " " + hidden + " " + strings.Repeat("z ", 100)
			got := masking(given + "\n")
			text := ""
			for _, piece := range got {
				if len(piece) > maxLineBytes+1 {
					t.Fatalf("a piece of %d bytes", len(piece))
				}
				text += strings.TrimPrefix(piece, "+")
			}
			visible := hidden[len(hidden)-6:]
			switch {
			case strings.HasSuffix(hidden, "@h"):
				visible = "-1234"
			case strings.HasSuffix(hidden, "KEY-----"):
				visible = pemKey[len(pemKey)-6:]
			}
			// Stars stand where a longer mask would not fit.
			if !strings.Contains(text, "[masked") && !strings.Contains(text, "***") || strings.Contains(text, visible) {
				t.Fatalf("%s after %d bytes: …%s", hidden, before, text[max(0, before-50):])
			}
		}
	}
}

// TestMaskingKeepsLines: what is masked has the same lines with the same marks, however it is cut into reads.
func TestMaskingKeepsLines(t *testing.T) {
	rnd := rand.New(rand.NewPCG(3, 4))
	words := []string{secret, "plain", " ", "\n", "\r\n", "ERROR", "AKIAIOSFODNN7EXAMPLE", "\x1b[31m", "é", "hunter2", "-----BEGIN PRIVATE KEY-----\n", "@", "://a:b@c "}
	for range 300 {
		var b strings.Builder
		for range rnd.IntN(60) {
			b.WriteString(words[rnd.IntN(len(words))])
		}
		all := b.String()
		plain, whole := cleanAll(all), masking(all)
		if len(plain) != len(whole) {
			t.Fatalf("%q: %d lines became %d", all, len(plain), len(whole))
		}
		var parts []string
		for rest := all; rest != ""; {
			n := 1 + rnd.IntN(len(rest))
			parts, rest = append(parts, rest[:n]), rest[n:]
		}
		if got := masking(parts...); strings.Join(got, "|") != strings.Join(whole, "|") {
			t.Fatalf("%q in parts: %q, in one: %q", all, got, whole)
		}
		for _, line := range whole {
			if strings.Contains(line, secret) {
				t.Fatalf("%q: %q", all, line)
			}
		}
	}
}

// TestNothingSecretIsStored: not in lines, errors, rows, documents and events, in memory and in the file.
func TestNothingSecretIsStored(t *testing.T) {
	ctx := context.Background()
	path := filepath.Join(t.TempDir(), "pmcp.db")
	s, err := Open(ctx, Options{Path: path, Mask: masker()})
	if err != nil {
		t.Fatal(err)
	}
	run, _ := s.NewRun("/p", "web")
	matched := make(chan Line, 1)
	go func() {
		l, _ := s.WaitLine(ctx, run, 0, func(l Line) bool { return strings.Contains(l.Text, "ready") })
		matched <- l
	}()
	s.Capture(run, Stdout, time.Now(), []byte("plain\nERROR cannot log in with "+secret+"\n"))
	s.Capture(run, Stderr, time.Now(), []byte("Error: bad key "+secret+"\n    at login (/app/"+secret+".js:1:2)\n    at main (/app/main.js:3:4)\nready "+secret+"\n"))
	s.Capture(run, Messages, time.Now(), []byte(`-> {"token":"`+secret+`"}`+"\n"))
	s.SaveRun(run, time.Now(), time.Time{}, []byte(`{"args":["`+secret+`"]}`))
	s.SaveDefinition("/p", "web", []byte(`{"args":["`+secret+`"]}`))
	s.SaveHealth("/p", "web", []byte(`{"output":"`+secret+`"}`))
	s.SaveGroup("/p", "g", []byte(`{"description":"`+secret+`"}`))
	s.SaveEvent("/p", "web", run, time.Now(), "it said "+secret)
	s.EndCapture(run)
	if l := <-matched; l.Text != "ready [masked APP_TOKEN]" {
		t.Errorf("matched %q", l.Text)
	}
	page, err := s.Read(ctx, Query{Runs: []int64{run}, Limit: 100})
	if err != nil || len(page.Lines) != 7 || page.Lines[1].Text != "ERROR cannot log in with [masked APP_TOKEN]" || page.Lines[1].Level != LevelError {
		t.Fatalf("%+v, %v", page, err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(path + "*")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	found := false
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if at := bytes.Index(text, []byte(secret)); at >= 0 {
			t.Errorf("%s holds it: %q", file, text[max(0, at-100):at+50])
		}
		found = found || bytes.Contains(text, []byte("[masked APP_TOKEN]"))
	}
	if !found {
		t.Error("nothing is stored")
	}
}
