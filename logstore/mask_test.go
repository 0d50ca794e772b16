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

	"pmcp/logstore/line"
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

// masking cleans and masks parts of a stream and returns the lines. An empty part is a pause of the
// stream.
func masking(parts ...string) []string {
	lines := masker().Lines()
	var got collected
	clean(&line.Cleaner{SafePrefix: lines.SafePrefix}, maskedSink{&lines, &got}, parts)
	return got
}

// clean feeds parts of a stream to a Cleaner. An empty part is a pause of the stream.
func clean(c *line.Cleaner, out line.Sink, parts []string) {
	for _, p := range parts {
		if p == "" {
			c.Flush(out)
		}
		c.Feed([]byte(p), out)
	}
	c.Finish(out)
}

// collected is a Sink that keeps lines: "+" marks a continuation of a line, "…" an unfinished line.
type collected []string

func (c *collected) Line(text []byte, continuation, partial bool) {
	s := string(text)
	if continuation {
		s = "+" + s
	}
	if partial {
		s += "…"
	}
	*c = append(*c, s)
}

// maskedSink is a Sink that masks lines as a Store does.
type maskedSink struct {
	lines *mask.Lines
	to    line.Sink
}

func (s maskedSink) Line(text []byte, continuation, partial bool) {
	s.to.Line(s.lines.Line(text), continuation, partial)
}

func TestMaskingWorksAcrossReads(t *testing.T) {
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
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

// TestMaskingWorksAcrossPieceBounds checks that a secret in a line that is too long for one piece
// is masked wherever the line is cut into pieces.
func TestMaskingWorksAcrossPieceBounds(t *testing.T) {
	const token = "ghp_16C7e42F292c6912E7710c838347Ae178B4a"
	for _, hidden := range []string{secret, token, "Authorization: Bearer abcdef123456", "postgres://u:pass-1234@h", "-----BEGIN PRIVATE KEY-----\n" + pemKey, "-----BEGIN RSA PRIVATE KEY-----\\n" + pemKey + "\\n-----END RSA PRIVATE KEY-----"} {
		for before := line.MaxLineBytes - len(hidden) - 2; before <= line.MaxLineBytes+2; before++ {
			given := strings.Repeat("x ", before/2) + strings.Repeat("y", before%2) + " " + hidden + " " + strings.Repeat("z ", 100)
			got := masking(given + "\n")
			text := ""
			for _, piece := range got {
				if len(piece) > line.MaxLineBytes+1 {
					t.Fatalf("got a piece of %d bytes, want at most %d", len(piece), line.MaxLineBytes+1)
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
			// Stars replace a mask that would not fit into a piece.
			if !strings.Contains(text, "[masked") && !strings.Contains(text, "***") || strings.Contains(text, visible) {
				t.Fatalf("%s after %d bytes: got …%s, want it masked", hidden, before, text[max(0, before-50):])
			}
		}
	}
}

// TestMaskingKeepsLines checks that masking keeps the number of lines and their marks, however the
// text is split into reads.
func TestMaskingKeepsLines(t *testing.T) {
	rnd := rand.New(rand.NewPCG(3, 4))
	words := []string{secret, "plain", " ", "\n", "\r\n", "ERROR", "AKIAIOSFODNN7EXAMPLE", "\x1b[31m", "é", "hunter2", "-----BEGIN PRIVATE KEY-----\n", "@", "://a:b@c "}
	for range 300 {
		var b strings.Builder
		for range rnd.IntN(60) {
			b.WriteString(words[rnd.IntN(len(words))])
		}
		all := b.String()
		var plain collected
		clean(&line.Cleaner{}, &plain, []string{all})
		whole := masking(all)
		if len(plain) != len(whole) {
			t.Fatalf("%q: got %d masked lines, want %d", all, len(whole), len(plain))
		}
		var parts []string
		for rest := all; rest != ""; {
			n := 1 + rnd.IntN(len(rest))
			parts, rest = append(parts, rest[:n]), rest[n:]
		}
		if got := masking(parts...); strings.Join(got, "|") != strings.Join(whole, "|") {
			t.Fatalf("%q in parts: got %q, want %q", all, got, whole)
		}
		for _, line := range whole {
			if strings.Contains(line, secret) {
				t.Fatalf("%q: got %q, want no secret", all, line)
			}
		}
	}
}

// TestSecretsAreNotStored checks that a secret that was printed is found neither in memory nor in
// the file: not in lines, errors, rows, documents or events.
func TestSecretsAreNotStored(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	path := filepath.Join(t.TempDir(), "pmcp.db")
	s, err := Open(ctx, Options{Path: path, Mask: masker()})
	if err != nil {
		t.Fatal(err)
	}
	run, _, _ := s.NewRun("/p", "web")
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
	s.SaveGroup("/p", "g", []byte(`{"description":"`+secret+`"}`))
	s.SaveEvent(Event{At: time.Now(), Project: "/p", Name: "web", Run: run, Text: "it said " + secret})
	s.EndCapture(run)
	if l := <-matched; l.Text != "ready [masked APP_TOKEN]" {
		t.Errorf("matched line: got %q, want it masked", l.Text)
	}
	page, err := s.Read(ctx, Query{Runs: []int64{run}, Limit: 100})
	if err != nil || len(page.Lines) != 7 || page.Lines[1].Text != "ERROR cannot log in with [masked APP_TOKEN]" || page.Lines[1].Level != line.LevelError {
		t.Fatalf("got %+v, %v; want 7 lines, the second a masked error", page, err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(path + "*")
	if err != nil || len(files) == 0 {
		t.Fatalf("database files: got %v, %v; want some", files, err)
	}
	found := false
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if at := bytes.Index(text, []byte(secret)); at >= 0 {
			t.Errorf("%s: got the secret in %q, want it masked", file, text[max(0, at-100):at+50])
		}
		found = found || bytes.Contains(text, []byte("[masked APP_TOKEN]"))
	}
	if !found {
		t.Error("got no mask in the files, want some")
	}
}
