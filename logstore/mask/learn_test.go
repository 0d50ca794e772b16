package mask

import (
	"fmt"
	"testing"
)

// TestValues: what variables and options say is masked by their names, the longest first.
func TestValues(t *testing.T) {
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
			t.Errorf("%s became\n%s, want\n%s", text, got, want)
		}
	}
	if texts := []string{"hunter2-hunter2"}; m.Texts(texts)[0] != "[masked API_TOKEN]" || texts[0] != "hunter2-hunter2" {
		t.Error(texts)
	}
}

// TestDocuments: of a variable of many lines that is a document, the secrets are masked and the rest is not.
func TestDocuments(t *testing.T) {
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
			t.Errorf("%s became\n%s, want\n%s", text, got, want)
		}
	}
}

// TestForgetting: of more than maxSecrets values those are forgotten that were learned longest ago,
// and none that is inherited.
func TestForgetting(t *testing.T) {
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
		t.Errorf("%s, want %s", got, want)
	}
	if len(m.known) != maxSecrets || len(m.order)+len(m.inherited) != maxSecrets {
		t.Error(len(m.known), len(m.order), len(m.inherited))
	}
	var entries []string
	for i := range 2 * maxSecrets {
		entries = append(entries, fmt.Sprintf("INHERITED_TOKEN_%d=number-%d-of-inherited", i, i))
	}
	m.LearnEnviron(entries)
	m.LearnEnv(map[string]string{"NEW_TOKEN": "a-new-secret"})
	if got := m.Text("a-new-secret"); got != "[masked NEW_TOKEN]" || len(m.known) != maxSecrets || len(m.inherited) != maxInherited {
		t.Error(got, len(m.known), len(m.inherited))
	}
}
