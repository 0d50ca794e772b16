package mask

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const (
	hex40    = "3f786850e387550fdab836ed7e6dc881de23001b"
	alnum36  = "16C7e42F292c6912E7710c838347Ae178B4a"
	webToken = "eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w5N_XgL0n3I9PlFUP0THsR8U"
)

// TestTokensAreMaskedAnywhere checks that a string with the form of a token is masked anywhere in a
// text, and the text around the token is not.
func TestTokensAreMaskedAnywhere(t *testing.T) {
	m := New()
	for _, token := range []string{
		"AKIAIOSFODNN7EXAMPLE", "ASIAY34FZKBOKMUTVV7A", "AIzaSyDaGmWKa4JsXZ-HjGw7ISLn_3namBGewQe",
		"ghp_" + alnum36, "gho_" + alnum36, "ghs_" + alnum36, "ghu_" + alnum36, "ghr_" + alnum36,
		"github_pat_11ABCDEFG0abcdefghijkl_" + alnum36 + "abcdefghijklmnopqrst123",
		"glpat-Ab3xYz9Qw-Lm2nOpRs7T", "xoxb-123456789012-1234567890123-" + alnum36[:24], "xoxp-1-2-3-" + alnum36, "xapp-1-A0123BCDEFG-1234567890123-" + hex40,
		"sk_live_" + alnum36[:24], "rk_live_" + alnum36[:24], "sk_test_4eC39HqLyjWDarjtT1zdp7dc", "whsec_" + alnum36[:32],
		"sk-" + alnum36 + "abcdefgh1234", "sk-ant-api03-" + alnum36 + "-" + alnum36 + "_AA", "sk-proj-" + alnum36 + alnum36,
		"npm_" + alnum36, "pypi-AgEIcHlwaS5vcmc" + alnum36 + alnum36, webToken,
		"glrt-" + alnum36[:20], "glrt-t1_" + alnum36[:20], "gldt-" + alnum36[:20], "glptt-" + hex40, "glcbt-64_" + alnum36[:20], "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",
		"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", "dop_v1_" + hex40 + hex40[:24], "dapi" + hex40[:32], "dapi" + hex40[:32] + "-2", "gsk_" + alnum36 + alnum36[:16], "xai-" + alnum36 + alnum36 + alnum36[:8],
		"hvs.CAESI" + alnum36 + "_" + alnum36, "SG.Ab3xYz9QwLm2nOpRs7TkVw.Ab3xYz9QwLm2nOpRs7TkVwAb3xYz9QwLm2nOpRs7TkVw", "ya29.a0AfH6SMB" + alnum36 + "-" + alnum36,
		"shpat_" + hex40[:32], "shpss_" + hex40[:32], "lin_api_" + alnum36 + "Zz12", "glsa_" + alnum36[:32] + "_0a1b2c3d", "r8_" + alnum36 + "Z", "123456789:AAHdqTcvCH1vGWJxfSeofSAs0K5PALDsaw" + "x",
		"MTk4NjIyNDgzNDcxOTI1MjQ4.Cl2FMQ.ZnCjm1XVW7vRze4b7Cq4se7kKWs",
	} {
		for _, around := range []string{"%s", "token %s.", `{"token":"%s"}`, "TOKEN=%s", "url?key=%s&b=1", "https://host/%s/x", "a\\n%s", "(%s)", "Bearer %s", "'%s',", "x %[1]s y %[1]s z"} {
			text := fmt.Sprintf(around, token)
			got := m.Text(text)
			if strings.Contains(got, token) || strings.Contains(got, token[len(token)-8:]) {
				t.Errorf("%s: got %s, want a mask", text, got)
				continue
			}
			before, _, _ := strings.Cut(text, token)
			_, after, _ := strings.Cut(text, token)
			after = after[strings.LastIndex(after, token)+1:]
			if !strings.HasPrefix(got, before+"[masked ") || !strings.HasSuffix(got, after[max(0, len(after)-2):]) {
				t.Errorf("%s: got %s, want it unchanged", text, got)
			}
		}
	}
}

// TestContextAnnouncesSecret checks that a value is masked if the words before or after it announce
// a secret.
func TestContextAnnouncesSecret(t *testing.T) {
	m := New()
	for text, want := range map[string]string{
		"Authorization: Bearer abcdef123":                                                   "Authorization: Bearer [masked credentials]",
		"> authorization: Bearer a.b-c_d~e+f/g=1":                                           "> authorization: Bearer [masked credentials]",
		`{"Authorization":"Basic dXNlcjpwYXNzd29yZA=="}`:                                    `{"Authorization":"Basic [masked credentials]"}`,
		`headers: { Authorization: 'Bearer tok12345' }`:                                     `headers: { Authorization: 'Bearer [masked credentials]' }`,
		"HTTP_AUTHORIZATION=Basic dXNlcjpwYXNzd29yZA==":                                     "HTTP_AUTHORIZATION=Basic [masked credentials]",
		"Authorization: Bot MTk4NjIyNDgzNDcxOTI1MjQ4.Cl2FMQ.ZnCjm1XVW7vRze4b7Cq4se7kKWs":    "Authorization: Bot [masked credentials]",
		"authorization: Negotiate YIIJvwYGKwYBBQUCoIIJszCCCa+gMDAuBgkqhkiG9w0BAQ== x":       "authorization: Negotiate [masked credentials] x",
		`{"Authorization":"Splunk 123e4567-e89b-12d3-a456-426614174000"}`:                   `{"Authorization":"Splunk [masked credentials]"}`,
		`Authorization:[SSWS 00QCjAl4MlV-WPXM-ABC0HmjFx-vbGua]`:                             `Authorization:[SSWS [masked credentials]]`,
		"HTTP_AUTHORIZATION=GenieKey eb243592-faa2-4ba2-a551q-1afdf565c889":                 "HTTP_AUTHORIZATION=GenieKey [masked credentials]",
		"Proxy-Authorization: " + hex40:                                                     "Proxy-Authorization: [masked credentials]",
		"curl with bearer " + hex40 + " failed":                                             "curl with bearer [masked credentials] failed",
		"postgres://app:s3cr3t@db:5432/x?a=b":                                               "postgres://app:[masked password]@db:5432/x?a=b",
		"mongodb://a:pw1@h1,h2/db and redis://:hunter2@r/0":                                 "mongodb://a:[masked password]@h1,h2/db and redis://:[masked password]@r/0",
		"cannot connect to amqp://u:p%40ss@host.":                                           "cannot connect to amqp://u:[masked password]@host.",
		"git clone https://x-access-token:abc@github.com/a/b":                               "git clone https://x-access-token:[masked password]@github.com/a/b",
		"x://u:123456?a@h x://u:8080@h x://u:80a?@h x://u:?@h":                              "x://u:[masked password]@h x://u:[masked password]@h x://u:[masked password]@h x://u:[masked password]@h",
		"at https://hooks.slack.com/services/T00000000/B00000000/" + alnum36[:24] + ": 404": "at https://hooks.slack.com/services/T00000000/B00000000/[masked Slack webhook]: 404",
		"https://discord.com/api/webhooks/12345678/" + alnum36 + "_" + alnum36[:31]:         "https://discord.com/api/webhooks/12345678/[masked Discord webhook]",
		"AKIAIOSFODNN7EXAMPLE,wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY,us-east-1":           "[masked AWS key id],[masked AWS secret key],us-east-1",
		"https://" + hex40 + "@github.com/a":                                                "https://[masked credentials]@github.com/a",
		`k: "-----BEGIN PRIVATE KEY-----\nMIIEvQ\nabc\n-----END PRIVATE KEY-----\n"`:        `k: "-----BEGIN PRIVATE KEY-----[masked private key]-----END PRIVATE KEY-----\n"`,
	} {
		if got := m.Text(text); got != want {
			t.Errorf("%s: got\n%s, want\n%s", text, got, want)
		}
	}
}

// TestOrdinaryTextIsUnchanged checks that text without secrets is not changed.
func TestOrdinaryTextIsUnchanged(t *testing.T) {
	m := New()
	m.LearnEnv(map[string]string{
		"NEXTAUTH_URL": "http://localhost:3000", "DB_PASSWORD": "postgres", "AUTH_PROVIDER": "credentials", "TOKEN_TTL": "86400000",
		"SSH_AUTH_SOCK": "/tmp/ssh-XXXXabc/agent.1", "GIT_AUTHOR_NAME": "Somebody Else", "XAUTHORITY": "/home/somebody/.Xauthority",
		"API_KEY": "short", "SECRET_MASK": "********", "AUTH0_DOMAIN": "example.auth0.com", "SSL_KEY": "./certs/server.key", "A_TOKEN": "${OTHER_TOKEN}",
		"B_TOKEN": "B_TOKEN", "PLAIN": "http://localhost:8080?email=me@example.com",
	})
	m.LearnArgs("--auth-type", "workspace", "--token-file=/run/secrets/thing", "--no-auth", "web-server", "--ssl-key", "certs/server.pem", "-e", "const token=getToken(); password=readPassword(x)")
	for _, text := range []string{
		hex40, "commit " + hex40 + hex40[:24], "HEAD is now at 3f78685 fix", "sha512-" + strings.Repeat("aB3+/x", 14) + "==",
		"id 123e4567-e89b-12d3-a456-426614174000 done", "trace=4bf92f3577b34da6a3ce929d0e0e4736 span=00f067aa0ba902b7",
		"dist/assets/index-BxVt0zKq.js 143.42 kB", "chunk {vendors-node_modules_react-dom_index_js} vendors~main.3f786850e387550f.chunk.js",
		"//# sourceMappingURL=data:application/json;base64,eyJ2ZXJzaW9uIjozLCJzb3VyY2VzIjpbIi4uL3NyYy9pbmRleC50cyJdLCJuYW1lcyI6W10sIm1hcHBpbmdzIjoiQUFBQSJ9",
		`!function(e,t){"object"==typeof exports?module.exports=t():e.eyJabc=t}(this,function(){return sk_function_with_long_name_1})`,
		`<div class="sk-cube-grid sk-fading-circle sk-loading-spinner-container-wrapper-2">`, "task-runner-for-everything-1234567890",
		"npm_config_registry_something_very_long_name=1", "npm_lifecycle_event_with_a_very_long_name_123456", "pypi-server-with-a-rather-long-name-for-a-host-1234567890-abcdefghij",
		"hf_transformers_of_many_models_v2", "dapis-of-long-name-1234567890-1234567890ab", "gsk_short1", "r8_short1", "xai-explainable-model-1", "lin_api_of_something_long_enough_1", "glrt-example",
		"SG.example", "see SG.AvailabilityOfSecurityGroups2.Count", "ya29.example", "hvs.vault.service.consul.example", "12345678:AAshort", "org.example.hvs.CertificateServiceFactoryBuilder",
		"https://hooks.slack.com/services/T/B/x", "POST /api/webhooks/stripe-checkout-session-1", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY", "GOCSPX-example",
		"AKIAIOSFODNN7EXAMPLEX", "xAKIAIOSFODNN7EXAMPLE", "ASIAN_MARKETS_REPORT_2024", "AIzaShort", "ghp_short", "glpat-example", "xoxb-token-goes-here",
		"http://localhost:5173/@vite/client", "http://localhost:3000", "npm warn foo@1.2.3 and @scope/pkg@2.0.0", "mail user@example.com:25", "ssh://git@github.com:22/x",
		"see 8080?email=me", "postgres://user:***@host/db", "postgres://user:${DB_PASSWORD}@host/db", "postgres://user:$PGPASSWORD@host", "redis://<user>:<password>@host",
		"GET http://localhost:8080?email=me@example.com", "http://127.0.0.1:8080,me@x.org", "docker://registry:5000;image@sha256:" + hex40, "at http://h:1#a@b", "x://h:65535:@a", "x://h:1.@a",
		"authorization /api/v2/really/long/path/x denied", "authorization: denied /api/v2/really/long/path/x", "authorization=ok trace=4bf92f3577b34da6a3ce929d0e0e4736",
		`{"authorization":"none","4bf92f3577b34da6a3ce929d0e0e4736":1}`, "authorization of 123e4567-e89b-12d3-a456-426614174000", "xapp-web-frontend-service-v2-build", "whsec_from_the_dashboard_of_stripe_1",
		"Authorization: Bearer <token>", "Authorization: Bearer $TOKEN", "authorization: enabled", "Authorization required", "WWW-Authenticate: Bearer realm=\"x\"",
		"Basic authentication is not supported, use bearer authentication_with_long_word", "authorization: basic authentication failed", "authorization token validation failed",
		"the database postgres accepts connections", "provider credentials workspace web-server", "readPassword getToken", "Somebody Else <x@y.z>",
		"-----BEGIN CERTIFICATE-----", "MIIBIjANBgkqhkiG9w0BAQEFAAOCAQ8AMIIBCgKCAQEAu1SU1LfVLPHCozMxH2Mo", "-----END CERTIFICATE-----",
		"ssh-rsa AAAAB3NzaC1yc2EAAAADAQABAAABAQC7 user@host", "key must begin with PRIVATE KEY-----", "[masked GITHUB_TOKEN] and [masked private key]",
		"", " ", "\t", strings.Repeat("x", 20000), strings.Repeat("ab1_", 8000), strings.Repeat("@", 3000), strings.Repeat("://", 3000), strings.Repeat("é", 100),
	} {
		if got := m.Text(text); got != text {
			t.Errorf("%.200s: got\n%.200s, want it unchanged", text, got)
		}
	}
}

// TestOrdinaryOutputIsUnchanged checks that recorded output of real programs is not changed.
func TestOrdinaryOutputIsUnchanged(t *testing.T) {
	files, err := filepath.Glob("../fault/testdata/*/*")
	if err != nil || len(files) < 5 {
		t.Fatal(files, err)
	}
	m := New()
	err = filepath.WalkDir("../fault/testdata", func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := os.ReadFile(path)
		if got := m.Text(string(text)); got != string(text) {
			for i, line := range strings.Split(got, "\n") {
				if !strings.Contains(string(text), line) {
					t.Errorf("%s:%d: got %s, want it unchanged", path, i+1, line)
				}
			}
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestMaskedTextIsBounded(t *testing.T) {
	m := New()
	long := strings.Repeat("0123456789abcdefg", 1000)
	m.LearnEnv(map[string]string{"LONG_SECRET": long, strings.Repeat("N", 100) + "_TOKEN": "a-short-secret"})
	if got := m.Text("x" + long + "y"); strings.Contains(got, "abcdefg") || !strings.HasPrefix(got, "x[masked LONG_SECRET]") || !strings.HasSuffix(got, "y") {
		t.Errorf("got %.300s, want the long secret masked", got)
	}
	if got := m.Text("a-short-secret"); got != "[masked "+strings.Repeat("N", maxLabel)+"]" {
		t.Errorf("got %s, want a name of %d bytes", got, maxLabel)
	}
	// A line that would become too long with named masks is masked with stars.
	l := m.Lines()
	if got := l.Line([]byte(strings.Repeat("a-short-secret", maxLine/14))); len(got) > maxLine || strings.Trim(string(got), "*") != "" {
		t.Errorf("got %d bytes, %.100s, want at most %d stars", len(got), got, maxLine)
	}
	many := make(map[string]string)
	for i := range maxSecrets {
		many[fmt.Sprintf("MANY_TOKEN_%d", i)] = fmt.Sprintf("number-%d-of-many", i)
	}
	m.LearnEnv(many)
	if got := m.Text("a-short-secret number-7-of-many"); got != "a-short-secret [masked MANY_TOKEN_7]" {
		t.Errorf("got %s, want the first value evicted", got)
	}
}

// TestSafePrefixDefersStartOfSecret checks that SafePrefix leaves out the end of a text that may be
// the start of a secret.
func TestSafePrefixDefersStartOfSecret(t *testing.T) {
	m := New()
	m.LearnEnv(map[string]string{"A_TOKEN": "hunter2-hunter2", "B_TOKEN": "hunter2-hunter2-longer"})
	l := m.Lines()
	for text, want := range map[string]struct {
		cut, pause string
	}{
		"plain text": {"", ""}, "say h": {"h", ""}, "say hunt": {"hunt", "hunt"}, "hunter2-hunter2": {"hunter2-hunter2", "hunter2-hunter2"},
		"hunter2-hunter2-longer": {"", ""}, "Password: ": {"", ""}, "Enter authorization: ": {"authorization: ", ""}, "x ghp_abc": {"ghp_abc", "ghp_abc"}, "a gh": {"gh", "gh"},
		"Authorization: Bearer abc": {"Authorization: Bearer abc", "Authorization: Bearer abc"}, "at http://localhost:3000": {"://localhost:3000", ""},
		"at http://localhost:3000/a": {"", ""}, strings.Repeat("x", 9000): {"", ""}, "use basic c": {"basic c", "basic c"},
		"a -": {"-", ""}, "a -----": {"-----", ""}, "a -----B": {"-----B", "-----B"}, "a -----BEGIN EC PRIVATE KEY----": {"-----BEGIN EC PRIVATE KEY----", "-----BEGIN EC PRIVATE KEY----"},
		"a -----BEGIN EC PRIVATE KEY-----": {"", ""}, "-----BEGIN " + strings.Repeat("of prose ", 6): {"", ""}, "-----BEGIN PRIVATE KEY-----\nMIIEow-": {"-", ""},
		"-----BEGIN " + strings.Repeat("k", maxKind-len(keyBegin)) + "PRIVATE KEY BLOCK----": {"-----BEGIN " + strings.Repeat("k", maxKind-len(keyBegin)) + "PRIVATE KEY BLOCK----", "-----BEGIN " + strings.Repeat("k", maxKind-len(keyBegin)) + "PRIVATE KEY BLOCK----"},
	} {
		if got := text[l.SafePrefix([]byte(text), true):]; got != want.cut {
			t.Errorf("%.100s: got %.100q deferred at a cut, want %q", text, got, want.cut)
		}
		if got := text[l.SafePrefix([]byte(text), false):]; got != want.pause {
			t.Errorf("%.100s: got %.100q deferred at a pause, want %q", text, got, want.pause)
		}
	}
	if got := m.Clipped("say hunter2-hun"); got != "say " {
		t.Errorf("got %q, want %q", got, "say ")
	}
	for n := range 40 {
		if got := string(m.Head([]byte("at hunter2-hunter2-longer end"), true, n)); strings.Contains(got, "hunt") || len(got) > n {
			t.Errorf("Head of %d bytes: got %s, want no part of the secret", n, got)
		}
	}
	if got := string(m.Head([]byte("at hunter2-hunter2-lo"), false, 100)); got != "at " {
		t.Errorf("got %q, want %q", got, "at ")
	}
}

func TestJSONMasksOnlyStrings(t *testing.T) {
	m := New()
	m.LearnEnv(map[string]string{"A_TOKEN": `hunter"2\hunter`, "B_TOKEN": "structuredContent", "C_SECRET": "two lines\nof a secret"})
	for raw, want := range map[string]string{
		`{"structuredContent":"structuredContent","n":1}`: `{"structuredContent":"[masked B_TOKEN]","n":1}`,
		`["x","hunter\"2\\hunter"]`:                       `["x","[masked A_TOKEN]"]`,
		`{"a":"a\nAKIAIOSFODNN7EXAMPLE\nb <é>"}`:          `{"a":"a\n[masked AWS key id]\nb <é>"}`,
		`{"a" : "two lines\nof a secret"}`:                `{"a" : "[masked C_SECRET]\n[masked C_SECRET]"}`,
		`{}`:                                              `{}`, ``: ``, `null`: `null`, `"open`: `"open`,
	} {
		if got := string(m.JSON([]byte(raw))); got != want {
			t.Errorf("%s: got %s, want %s", raw, got, want)
		}
	}
}

// TestNilMaskerMasksNothing checks that a nil Masker masks nothing.
func TestNilMaskerMasksNothing(t *testing.T) {
	var m *Masker
	m.LearnEnv(map[string]string{"A_TOKEN": "hunter2-hunter2"})
	m.LearnEnviron([]string{"A_TOKEN=hunter2-hunter2"})
	m.LearnArgs("--token", "hunter2-hunter2")
	lines := m.Lines()
	text := "AKIAIOSFODNN7EXAMPLE"
	if m.Text(text) != text || m.Clipped(text) != text || string(m.JSON([]byte(`"`+text+`"`))) != `"`+text+`"` || string(lines.Line([]byte(text))) != text ||
		lines.SafePrefix([]byte(text), true) != len(text) || string(m.Head([]byte(text), true, 5)) != text[:5] || m.Texts([]string{text})[0] != text {
		t.Error("a nil Masker changed a text")
	}
	var b strings.Builder
	if n, err := m.Writer(&b).Write([]byte(text)); n != len(text) || err != nil || b.String() != text {
		t.Errorf("got %s, want %s", b.String(), text)
	}
	b.Reset()
	if n, err := New().Writer(&b).Write([]byte(text)); n != len(text) || err != nil || b.String() != "[masked AWS key id]" {
		t.Errorf("got %s, want [masked AWS key id]", b.String())
	}
}

// TestSecretsAreFoundAtEveryOffset checks that learned values of every length, and a token, are
// masked wherever they start in a text.
func TestSecretsAreFoundAtEveryOffset(t *testing.T) {
	const letters = "k9Qz7Lm2Vx4Rt6Wp1Ny8Bc3Df5Gh0Js"
	for length := minSecret; length <= len(letters); length++ {
		m := New()
		m.LearnEnv(map[string]string{"A_TOKEN": letters[:length]})
		for before := range 2 * maxStride {
			for after := range 2 * maxStride {
				if got := m.Text(strings.Repeat(".", before) + letters[:length] + strings.Repeat(".", after)); got != strings.Repeat(".", before)+"[masked A_TOKEN]"+strings.Repeat(".", after) {
					t.Fatalf("%d bytes after %d: got %s, want a mask", length, before, got)
				}
			}
		}
	}
	m := New()
	for before := range 3 * maxStride {
		if got := m.Text(strings.Repeat(" ", before) + "AKIAIOSFODNN7EXAMPLE"); got != strings.Repeat(" ", before)+"[masked AWS key id]" {
			t.Fatalf("a token after %d bytes: got %s, want a mask", before, got)
		}
	}
}

// TestChainedJWTsAreMaskedToTheEnd checks that a JWT whose later parts begin another JWT is
// masked up to the end of that one.
func TestChainedJWTsAreMaskedToTheEnd(t *testing.T) {
	header, rest, _ := strings.Cut(webToken, ".")
	payload, signature, _ := strings.Cut(rest, ".")
	chained := strings.Join([]string{header, payload, header, payload, signature}, ".")
	if got, want := New().Text("token="+chained+" end"), "token=[masked JWT] end"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}
