package mask

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
)

// TestLearnedValuesAreMasked checks that the learned values of secret variables and options are
// masked with the names of these, and that the longest of overlapping values is masked.
func TestLearnedValuesAreMasked(t *testing.T) {
	m := New()
	m.LearnEnv(map[string]string{
		"API_TOKEN": "hunter2-hunter2", "LONGER_SECRET": "hunter2-hunter2-and-more", "APP_PASS": "päss\"wörd<1>", "PLAIN": "this is public",
		"DATABASE_URL": "postgres://app:correct%20horse@db/x", "MULTI_KEY": "first secret line\nsecond secret line\r\n",
		"GOOGLE_CREDENTIALS": "{\n  \"type\": \"service_account\",\n  \"private_key_id\": \"0123456789abcdef0123456789abcdef01234567\"\n}",
		"A_TOKEN":            "overlap-one-two", "B_TOKEN": "two-three-overlap", "SENTRY_DSN": "https://abc@sentry.example.com/1",
	})
	m.LearnEnviron([]string{"INHERITED_SECRET=from=outside", "nonsense"})
	m.LearnArgs("server", "--password=opt-pass-1", "--api-key", "opt-key-22", "-Dspring.datasource.password=jvm-pass-3", "sh -c 'PGPASSWORD=\"in-script-4\" psql --token tok-script-5'")
	for text, want := range map[string]string{
		"hunter2-hunter2":                 "[masked API_TOKEN]",
		"xhunter2-hunter2x":               "x[masked API_TOKEN]x",
		"hunter2-hunter2-and-more":        "[masked LONGER_SECRET]",
		`{"a":"päss\"wörd\u003c1\u003e"}`: `{"a":"[masked APP_PASS]"}`,
		`{"a":"päss\"wörd<1>"}`:           `{"a":"[masked APP_PASS]"}`,
		`päss"wörd<1>`:                    "[masked APP_PASS]",
		"this is public":                  "this is public",
		"password correct horse":          "password [masked DATABASE_URL]",
		"correct%20horse!":                "[masked DATABASE_URL]!",
		"1 first secret line":             "1 [masked MULTI_KEY]",
		"second secret line":              "[masked MULTI_KEY]",
		`"private_key_id": "0123456789abcdef0123456789abcdef01234567"`: `"private_key_id": "[masked GOOGLE_CREDENTIALS]"`,
		`"type": "service_account",`:                                   `"type": "service_account",`,
		"overlap-one-two-three-overlap":                                "[masked B_TOKEN]",
		"https://abc@sentry.example.com/1":                             "[masked SENTRY_DSN]",
		"from=outside":                                                 "[masked INHERITED_SECRET]",
		"opt-pass-1 opt-key-22":                                        "[masked --password] [masked --api-key]",
		"jvm-pass-3 in-script-4 tok-script-5":                          "[masked -Dspring.datasource.password] [masked PGPASSWORD] [masked --token]",
		"server --password=opt-pass-1 --api-key opt-key-22":            "server --password=[masked --password] --api-key [masked --api-key]",
	} {
		if got := m.Text(text); got != want {
			t.Errorf("%s: got\n%s, want\n%s", text, got, want)
		}
	}
	if texts := []string{"hunter2-hunter2"}; m.Texts(texts)[0] != "[masked API_TOKEN]" || texts[0] != "hunter2-hunter2" {
		t.Errorf("got %q afterwards, want the texts unchanged and a masked copy", texts)
	}
}

// TestOnlySecretsOfDocumentsAreMasked checks that only the secrets in the value of a variable are
// masked if the value is a document of many lines.
func TestOnlySecretsOfDocumentsAreMasked(t *testing.T) {
	m := New()
	m.LearnEnv(map[string]string{
		"KUBE_CREDENTIALS": "apiVersion: v1\nclusters:\n- cluster:\n    certificate-authority-data: LS0tLS1CRUdJTi0t\n    server: https://10.0.0.1:6443\n  name: kubernetes-1-of-cluster\n" +
			"users:\n- name: administrator\n  user:\n    token: \"kube-secret\"\n    note: version 2 of the administrators\n    key: |\n      c2VjcmV0IDEyMyBzZWNyZXQgNDU2\n",
		"DOTENV_SECRET": "# settings of production\nexport API_TOKEN=token-of-env\nLOG_LEVEL=debugging\nSESSION='0123456789abcdef'\n",
		"PEM_KEY":       "-----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\n\nabcdefgh+ijkl\nmnopqrst=\n-----END RSA PRIVATE KEY-----\n",
		"RUNS_KEY":      "abcdefghijklm\nnopqrstuvwx==\n",
	})
	for text, want := range map[string]string{
		"clusters: 3 ready; apiVersion: v1, name: administrator":   "clusters: 3 ready; apiVersion: v1, name: administrator",
		"- cluster: https://10.0.0.1:6443 kubernetes-1-of-cluster": "- cluster: https://10.0.0.1:6443 kubernetes-1-of-cluster",
		"note: version 2 of the administrators":                    "note: version 2 of the administrators",
		"token kube-secret":                                        "token [masked KUBE_CREDENTIALS]", "LS0tLS1CRUdJTi0t,": "[masked KUBE_CREDENTIALS],",
		"key c2VjcmV0IDEyMyBzZWNyZXQgNDU2":              "key [masked KUBE_CREDENTIALS]",
		"# settings of production: LOG_LEVEL=debugging": "# settings of production: LOG_LEVEL=debugging",
		"with token-of-env and 0123456789abcdef":        "with [masked DOTENV_SECRET] and [masked DOTENV_SECRET]",
		"abcdefgh+ijkl mnopqrst=":                       "[masked PEM_KEY] [masked PEM_KEY]",
		"abcdefghijklm nopqrstuvwx==":                   "[masked RUNS_KEY] [masked RUNS_KEY]",
	} {
		if got := m.Text(text); got != want {
			t.Errorf("%s: got\n%s, want\n%s", text, got, want)
		}
	}
}

// TestOldValuesAreEvicted checks that, beyond maxSecrets values, the least recently learned values
// are no longer masked, but inherited values still are.
func TestOldValuesAreEvicted(t *testing.T) {
	m := New()
	m.LearnEnv(map[string]string{"OLD_TOKEN": "an-old-secret", "AGAIN_TOKEN": "an-old-secret-again"})
	m.LearnEnviron([]string{"INHERITED_TOKEN=an-inherited-secret"})
	for round := range 2 {
		m.LearnEnv(map[string]string{"AGAIN_TOKEN": "an-old-secret-again"})
		many := make(map[string]string)
		for i := range maxSecrets / 2 {
			many[fmt.Sprintf("MANY_TOKEN_%d", i)] = fmt.Sprintf("number-%d-of-round-%d", i, round)
		}
		m.LearnEnv(many)
	}
	if got, want := m.Text("an-old-secret, an-old-secret-again, an-inherited-secret"), "an-old-secret, [masked AGAIN_TOKEN], [masked INHERITED_TOKEN]"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if len(m.known) != maxSecrets || m.inherited != 1 {
		t.Errorf("got %d values known, %d of them inherited, want %d and 1", len(m.known), m.inherited, maxSecrets)
	}
	var entries []string
	for i := range 2 * maxSecrets {
		entries = append(entries, fmt.Sprintf("INHERITED_TOKEN_%d=number-%d-of-inherited", i, i))
	}
	m.LearnEnviron(entries)
	m.LearnEnv(map[string]string{"NEW_TOKEN": "a-new-secret"})
	if got := m.Text("a-new-secret"); got != "[masked NEW_TOKEN]" || len(m.known) != maxSecrets || m.inherited != maxInherited {
		t.Errorf("got %s with %d values known and %d inherited, want them bounded", got, len(m.known), m.inherited)
	}
}

// TestWebhookWithTokenIsMasked checks that the URL of a webhook is masked only if it contains a
// token.
func TestWebhookWithTokenIsMasked(t *testing.T) {
	m := New()
	m.LearnEnv(map[string]string{"WEBHOOK_URL": "https://hooks.example.com/x/9f86d081884c7d659a2feaa0", "LOCAL_WEBHOOK_URL": "http://localhost:3000/api/webhook", "WEBHOOK": "enabled-for-all"})
	const text = "to https://hooks.example.com/x/9f86d081884c7d659a2feaa0 and http://localhost:3000/api/webhook, enabled-for-all"
	if got, want := m.Text(text), "to [masked WEBHOOK_URL] and http://localhost:3000/api/webhook, enabled-for-all"; got != want {
		t.Errorf("got %s\nwant %s", got, want)
	}
}

// TestLearnJSONLearnsSecretKeys checks that LearnJSON learns strings whose keys are names of
// secrets, whatever the strings look like.
func TestLearnJSONLearnsSecretKeys(t *testing.T) {
	m := New()
	m.LearnJSON([]byte(`{"user":"administrator","login":{"password":"correct-horse","otherPasswords":["x"]},"tokens":["admin-token"],"apiKey":["first-of-keys","short"],"secret":12345678}`))
	m.LearnJSON([]byte(`{"password":`))
	const text = "administrator correct-horse admin-token first-of-keys short 12345678"
	if got, want := m.Text(text), "administrator [masked password] admin-token [masked apiKey] short 12345678"; got != want {
		t.Errorf("got %s\nwant %s", got, want)
	}
}

// TestScriptIsNoSetting checks that a script which begins with a secret setting is shown but for
// the secret.
func TestScriptIsNoSetting(t *testing.T) {
	const script, want = "DB_PASSWORD='in-script-4' psql shop | cat", "DB_PASSWORD='[masked DB_PASSWORD]' psql shop | cat"
	m := New()
	m.LearnArgs("-c", script)
	if got := m.Text(script); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	m.LearnArgs("env", "DB_PASSWORD=two words-5")
	if got := m.Text("two words-5"); got != "[masked DB_PASSWORD]" {
		t.Errorf("got %s, want it masked", got)
	}
}

// TestLearnArgsCopiesNoArgumentPerSetting checks that LearnArgs of an argument with many settings
// allocates a multiple of the argument's length, not of its length times the number of settings.
func TestLearnArgsCopiesNoArgumentPerSetting(t *testing.T) {
	const settings, most = 50_000, 5000 // most is bytes allocated for each byte of the argument; with the race detector, regexps allocate 1600
	arg := strings.Repeat(`x y=\ `, settings)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	New().LearnArgs(arg)
	runtime.ReadMemStats(&after)
	if per := (after.TotalAlloc - before.TotalAlloc) / uint64(len(arg)); per > most {
		t.Errorf("allocated %d bytes for each byte of the argument, want at most %d", per, most)
	}
}

// TestInputsAreLearned checks that an input marked as secret is masked, in any call, and that
// LearnInput reports an input that cannot be masked.
func TestInputsAreLearned(t *testing.T) {
	for value, masked := range map[string]bool{"typed-in-1": true, "typed \"in\" 2": true, "short-7": false, "": false, "password": false, "aaaaaaaaa": false} {
		m := New()
		if got := m.LearnInput(value); got != masked || masked == strings.Contains(m.Text("x "+value+" y"), "x "+value+" y") {
			t.Errorf("%q: got %v and %s, want %v", value, got, m.Text("x "+value+" y"), masked)
		}
	}
	m := New()
	m.Exempt("typed-in-shop")
	if m.LearnInput("typed-in") {
		t.Error("got a part of an exempt text masked, want it shown")
	}
	for raw, masked := range map[string]bool{
		`{"steps":[{"expect":"x","send":"typed-in-1","secret":true}]}`:     true,
		`{"steps":"[{\"send\":\"typed-in-1\",\"secret\":true}]"}`:          true,
		`{"a":{"send":"typed-in-1","secret":true,"x":1}}`:                  true,
		`{"steps":"[{\"send\":\"typed-in-1\",\"secret\":\"true\"}]"}`:      true,
		`{"steps":[{"expect":"x","send":"typed-in-1","secret":false}]}`:    false,
		`{"steps":[{"expect":"x","send":"typed-in-1"}]}`:                   false,
		`{"steps":[{"expect":"typed-in-1","send":"other","secret":true}]}`: false,
		`{"steps":[{"send":"typed-in-1","secret":true}`:                    false,
	} {
		m := New()
		m.LearnSteps([]byte(raw))
		if got := m.Text("typed-in-1") != "typed-in-1"; got != masked {
			t.Errorf("%s: got masked %v, want %v", raw, got, masked)
		}
	}
	var none *Masker
	none.LearnSteps([]byte(`{"secret":true}`))
	if none.LearnInput("typed-in-1") {
		t.Error("without a masker: got masked, want not")
	}
}
