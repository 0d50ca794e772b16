package mask

import (
	"strings"
	"testing"
)

func TestPrivateKeysAreMasked(t *testing.T) {
	body := strings.Repeat("MIIEowIBAAKCAQEAu1SU1LfVLPHCozMxH2Mo4lgOEePzNm0tRgeLezV6ffAt0gun\n", 3)
	for text, want := range map[string]string{
		"a\n-----BEGIN RSA PRIVATE KEY-----\n" + body + "abc=\n-----END RSA PRIVATE KEY-----\nready\n":                                                                                     "a\n-----BEGIN RSA PRIVATE KEY-----\n" + strings.Repeat("[masked private key]\n", 4) + "-----END RSA PRIVATE KEY-----\nready\n",
		"web | -----BEGIN PRIVATE KEY-----\nweb | " + strings.ReplaceAll(body[:65*2], "\n", "\nweb | ") + "-----END PRIVATE KEY-----":                                                      "web | -----BEGIN PRIVATE KEY-----\nweb | " + strings.Repeat("[masked private key]\nweb | ", 2) + "-----END PRIVATE KEY-----",
		"-----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\nDEK-Info: AES-128-CBC,AB\n\n" + body + "-----END RSA PRIVATE KEY-----\n":                                                 "-----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\nDEK-Info: AES-128-CBC,AB\n\n" + strings.Repeat("[masked private key]\n", 3) + "-----END RSA PRIVATE KEY-----\n",
		"error: want -----BEGIN PRIVATE KEY-----\n/usr/local/lib/node/modules\nready\n":                                                                                                    "error: want -----BEGIN PRIVATE KEY-----\n/usr/local/lib/node/modules\nready\n",
		"-----BEGIN PGP PRIVATE KEY BLOCK-----\nVersion: GnuPG v2.0.22 (GNU/Linux)\nComment: made at https://example.org/keys\n\n" + body + "=aB3d\n-----END PGP PRIVATE KEY BLOCK-----\n": "-----BEGIN PGP PRIVATE KEY BLOCK-----\nVersion: GnuPG v2.0.22 (GNU/Linux)\nComment: made at https://example.org/keys\n\n" + strings.Repeat("[masked private key]\n", 4) + "-----END PGP PRIVATE KEY BLOCK-----\n",
		"w | -----BEGIN PGP PRIVATE KEY BLOCK-----\nw | Version: BCPG\nw | \nw | " + body[:65] + "w | -----END PGP PRIVATE KEY BLOCK-----\n":                                               "w | -----BEGIN PGP PRIVATE KEY BLOCK-----\nw | Version: BCPG\nw | \nw | [masked private key]\nw | -----END PGP PRIVATE KEY BLOCK-----\n",
		"-----BEGIN PRIVATE KEY-----\n" + body + "cut short\nready\n":                                                                                                                      "-----BEGIN PRIVATE KEY-----\n" + strings.Repeat("[masked private key]\n", 3) + "cut short\nready\n",
		"-----BEGIN PRIVATE KEY-----\n" + body + "Done\nCompiling\n":                                                                                                                       "-----BEGIN PRIVATE KEY-----\n" + strings.Repeat("[masked private key]\n", 3) + "Done\nCompiling\n",
		"-----BEGIN PRIVATE KEY-----\n" + body + "a1B\nCompiling\n":                                                                                                                        "-----BEGIN PRIVATE KEY-----\n" + strings.Repeat("[masked private key]\n", 4) + "Compiling\n",
	} {
		if got := New().Text(text); got != want {
			t.Errorf("%s: got\n%s, want\n%s", text, got, want)
		}
	}
}

// TestPrivateKeyInPiecesIsMasked checks that a private key on a line that is too long for one piece
// is masked in both pieces, wherever the first piece ends.
func TestPrivateKeyInPiecesIsMasked(t *testing.T) {
	const body = "MIIEowIBAAKCAQEAu1SU1LfVLPHCozMxH2Mo4lgOEePzNm0tRgeLezV6ffAt0gun"
	const begin, end = `{"pad":"x","key":"-----BEGIN RSA PRIVATE KEY-----`, `-----END RSA PRIVATE KEY-----\n"}`
	key := strings.Repeat(`\n`+body, 4) + `\nabcDEF=\n`
	for cut := range len(key) + 1 {
		l := New().Lines()
		first := string(l.Line([]byte(begin + key[:cut])))
		second := string(l.Line([]byte(key[cut:] + end)))
		if !strings.HasPrefix(first, begin) || !strings.HasSuffix(second, end) {
			t.Errorf("cut at %d: got %s and %s, want %s before the key and %s after it", cut, first, second, begin, end)
		}
		rest := maskText.ReplaceAllString(strings.TrimPrefix(first, begin)+strings.TrimSuffix(second, end), "")
		if strings.Trim(rest, `\`) != "" {
			t.Errorf("cut at %d: got %q of the key, want nothing of it", cut, rest)
		}
	}
}

// TestRestOfLineIsMaskedAfterLongKey checks that, if a private key does not end within
// maxKeyOnLine, the rest of the line is masked.
func TestRestOfLineIsMaskedAfterLongKey(t *testing.T) {
	const begin, end = "-----BEGIN PRIVATE KEY-----", "-----END PRIVATE KEY-----"
	for text, want := range map[string]string{
		begin + strings.Repeat("x ", maxKeyOnLine/2-100) + end:       begin + "[masked private key]" + end,
		begin + strings.Repeat("x ", maxKeyOnLine/2) + end + ",more": begin + "[masked private key]",
		strings.Repeat(begin+" ", 3000):                              begin + "[masked private key] ",
	} {
		if got := New().Text(text); got != want {
			t.Errorf("%d bytes: got %.200s, want %.200s", len(text), got, want)
		}
	}
}
