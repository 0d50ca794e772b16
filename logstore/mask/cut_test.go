package mask

import (
	"fmt"
	"regexp"
	"strings"
	"testing"
)

// maskedTwice is the masked form of a private key whose line is cut within the key: each half gets
// a mask.
const maskedTwice = "[masked private key][masked private key]"

// endBegun matches a text that ends within the END line of a private key.
var endBegun = regexp.MustCompile(`KEY.*-----EN?D?$`)

// inPieces masks text as one line in two pieces. The first piece ends where SafePrefix allows a cut
// when only text[:at] has been read.
func inPieces(m *Masker, text string, at int, cut bool) string {
	l := m.Lines()
	n := l.SafePrefix([]byte(text[:at]), cut)
	first := string(l.Line([]byte(text[:n])))
	return strings.ReplaceAll(first+string(l.Line([]byte(text[n:]))), maskedTwice, maskedTwice[:len(maskedTwice)/2])
}

// TestPiecesAreMaskedAsTheWholeLine checks that a line masked in two pieces equals the line masked
// as a whole, wherever the cut is.
func TestPiecesAreMaskedAsTheWholeLine(t *testing.T) {
	const body = "MIIEowIBAAKCAQEAu1SU1LfVLPHCozMxH2Mo4lgOEePzNm0tRgeLezV6ffAt0gun"
	m := New()
	m.LearnEnv(map[string]string{
		"A_TOKEN": "hunter2-hunter2", "B_TOKEN": "2-many-secrets", "C_TOKEN": "aB3+/xQz9/s", "D_TOKEN": "Qz9-of-some-b", "APP_DSN": "redis://h?auth=of-9-shards",
	})
	m.LearnArgs("--password", "pass-word-9", "--db", "postgres://u:p4ss-of-db@h/x")
	for _, hidden := range []string{
		"hunter2-hunter2", "2-many-secrets", "aB3+/xQz9/s", "Qz9-of-some-b", "redis://h?auth=of-9-shards", "pass-word-9", "p4ss-of-db",
		"AKIAIOSFODNN7EXAMPLE", "ASIAY34FZKBOKMUTVV7A", "AIzaSyDaGmWKa4JsXZ-HjGw7ISLn_3namBGewQe", webToken,
		"ghp_" + alnum36, "gho_" + alnum36, "ghs_" + alnum36, "ghu_" + alnum36, "ghr_" + alnum36, "github_pat_11ABCDEFG0abcdefghijkl_" + alnum36, "glpat-Ab3xYz9Qw-Lm2nOpRs7T",
		"xoxa-2-" + alnum36, "xoxb-123456789012-" + alnum36, "xoxp-1-2-3-" + alnum36, "xoxr-" + alnum36, "xoxs-" + alnum36, "xapp-1-A0123BCDEFG-1234567890123-" + alnum36, "whsec_" + alnum36,
		"sk_live_" + alnum36, "rk_live_" + alnum36, "sk_test_" + alnum36, "rk_test_" + alnum36, "sk-ant-api03-" + alnum36, "npm_" + alnum36, "pypi-AgEIcHlwaS5vcmc" + alnum36 + alnum36,
		"Authorization: Bearer abcdef123", `"authorization":"Basic dTpwYXNzd29yZA=="`, "Authorization: ApiKey abcdef123", "Authorization: token abcdef123", "Proxy-Authorization: " + hex40,
		"HTTP_AUTHORIZATION=Basic dTpwYXNzd29yZA==", "HTTP_AUTHORIZATION=token abcdef123", "AUTHORIZATION=" + hex40, "AUTHORIZATION=abcdefgh-ijklm-opq-789",
		"Authorization: Bot MTk4NjIyNDgzNDcxOTI1MjQ4.Cl2FMQ.ZnCjm1XVW7vRze4b7Cq4se7kKWs", `{"authorization" : "Klaviyo-API-Key pk_0123456789abcdef0123"}`, "HTTP_AUTHORIZATION=Splunk 123e4567-e89b-12d3-a456-426614174000",
		"headers.authorization = 'abcdefgh-ijklm-opq-789'", "proxyAuthorization: token abcdef123", "with bearer " + hex40, "Basic dXNlcjpwYXNzd29yZC1vZi11c2Vy",
		"postgres://app:s3cr3t@db:5432/x", "redis://:p4ss@word@r", "https://" + hex40 + "@github.com",
		"-----BEGIN PRIVATE KEY-----\\n" + body + "\\nabc=\\n-----END PRIVATE KEY-----", "-----BEGIN RSA PRIVATE KEY-----" + body + "-----END RSA PRIVATE KEY-----",
		"-----BEGIN PGP PRIVATE KEY BLOCK-----\\n\\n" + body + "\\n=aB3d\\n-----END PGP PRIVATE KEY BLOCK-----",
	} {
		for _, around := range []string{"%s", "✓→│é✓→│é✓→│é %s", "say %s and on", `{"a":"%s","b":"c"}`, `"a\n%s\nb"`, "a=%s;b", "%[1]s %[1]s"} {
			text := fmt.Sprintf(around, hidden)
			want := m.Text(text)
			if want == text {
				t.Errorf("%s: got it unmasked, want a mask", text)
			}
			for at := range len(text) + 1 {
				got := inPieces(m, text, at, true)
				if endBegun.MatchString(text[:at]) && !strings.Contains(got, "gun") && !strings.Contains(got, "abc=") {
					continue // the part of a key's last line that has been read is masked with the key
				}
				if got != want {
					t.Errorf("%s| |%s: got %s, want %s", text[:at], text[at:], got, want)
				}
			}
			if at := strings.Index(text, hidden) + len(hidden); inPieces(m, text, at, false) != want {
				t.Errorf("%s, a pause, %s: got %s, want %s", text[:at], text[at:], inPieces(m, text, at, false), want)
			}
		}
	}
}
