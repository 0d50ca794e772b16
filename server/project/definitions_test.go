package project

import (
	"encoding/json"
	"strings"
	"testing"

	"pmcp/logstore/mask"
	"pmcp/server/stdio/stdiotest"
)

func TestStoredDefinitionHasNoSecrets(t *testing.T) {
	for given, want := range map[string]string{
		`{"command":"npm run dev"}`:                                   `{"command":"npm run dev"}`,
		`{"command":"PORT=1 npm run dev"}`:                            `{"command":"PORT=1 npm run dev"}`,
		`{"command":"API_KEY=k PORT=1 sh -c 'echo \"it'\\''s\"; x'"}`: `{"command":"sh -c 'echo \"it'\\''s\"; x'","env":{"PORT":"1"},"secret_env":["API_KEY"]}`,
		`{"command":"API_KEY=k PORT=1 node","env":{"PORT":"2"}}`:      `{"command":"node","env":{"PORT":"2"},"secret_env":["API_KEY"]}`,
		`{"command":"API_KEY=k","args":["x"]}`:                        `{"command":"API_KEY=k","args":["x"]}`, // API_KEY=k is the name of the program
		`{"command":"x","env":{"DB_PASS":"p","SSH_KEY":"k","MYSQL_PWD":"p","GPG_PASSPHRASE":"p","BYPASS":"1","PWD":"/","KEYS":"1"}}`: `{"command":"x","env":{"BYPASS":"1","KEYS":"1","PWD":"/"},"secret_env":["DB_PASS","GPG_PASSPHRASE","MYSQL_PWD","SSH_KEY"]}`,
	} {
		var a Definition
		stdiotest.NoErr(t, json.Unmarshal([]byte(given), &a))
		got, err := json.Marshal(a.withoutSecrets(t.TempDir(), nil))
		if err != nil || string(got) != want {
			t.Errorf("%s: got\n%s, %v; want\n%s", given, got, err, want)
		}
		if again, _ := json.Marshal(a); len(again) != len(given) {
			t.Errorf("%s: got it changed in place to %s, want it unchanged", given, again)
		}
	}
}

// TestStoredDefinitionHasNoMaskedValues checks that a value that looks like a
// secret is not stored, and that the argument that held the value must be given
// again.
func TestStoredDefinitionHasNoMaskedValues(t *testing.T) {
	m := mask.New()
	m.LearnArgs("--token", "hunter2-hunter2")
	m.LearnEnv(map[string]string{"ConnectionStrings__Default": "Server=db;User Id=sa;Password=Str0ng-Pw-1"})
	for given, want := range map[string]string{
		`{"command":"x","env":{"ConnectionStrings__Default":"Server=db;User Id=sa;Password=Str0ng-Pw-1"}}`: `{"command":"x","secret_env":["ConnectionStrings__Default"]}`,
		`{"command":"x","env":{"DATABASE_URL":"postgres://u:p@h/d","PORT":"1"}}`:                           `{"command":"x","env":{"PORT":"1"},"secret_env":["DATABASE_URL"]}`,
		`{"command":"DATABASE_URL=postgres://u:p@h/d x"}`:                                                  `{"command":"x","secret_env":["DATABASE_URL"]}`,
		`{"command":"x --token hunter2-hunter2","restart":"always"}`:                                       `{"command":"x --token [masked --token]","restart":"always","masked":["command"]}`,
		`{"command":"x","args":["--token","hunter2-hunter2"],"health":{"http":"http://u:p@h/"}}`:           `{"command":"x","args":["--token","[masked --token]"],"health":{"http":"http://u:[masked password]@h/"},"masked":["args","health"]}`,
	} {
		var a Definition
		stdiotest.NoErr(t, json.Unmarshal([]byte(given), &a))
		got, err := a.withoutSecrets(t.TempDir(), m).masked(m)
		if err != nil || string(got) != want {
			t.Errorf("%s: got\n%s, %v; want\n%s", given, got, err, want)
		}
	}
	stored := Definition{Command: "x", Args: []string{"[masked --token]"}, Masked: []string{"args", "health"}}
	for given, want := range map[string]string{
		`{}`: "args, health", `{"args":["y"]}`: "health", `{"command":"y"}`: "health", `{"command":"y","health":{"tcp":"1"}}`: "",
	} {
		var over Definition
		stdiotest.NoErr(t, json.Unmarshal([]byte(given), &over))
		over = stored.override(over, "/")
		if got := strings.Join(over.Masked, ", "); got != want {
			t.Errorf("%s: got %q missing, want %q", given, got, want)
		}
		if _, err := over.spec("x", t.TempDir(), false, true); (err != nil) != (want != "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got error %v, want one that names %q", given, err, want)
		}
	}
}

// TestNullRemovesFromDefinition checks what the arguments of a call do to a stored
// definition: env is merged, others replace, and null removes.
func TestNullRemovesFromDefinition(t *testing.T) {
	const stored = `{"command":"run","args":["x"],"env":{"A":"1","B":"2"},"ready":{"log":"up","port":0},"restart":"always","health":{"tcp":"1","retries":2},"secret_env":["TOKEN"],"masked":["health"]}`
	for given, want := range map[string]string{
		`{}`:                      stored,
		`{"env":{"B":"3","C":4}}`: `{"command":"run","args":["x"],"env":{"A":"1","B":"3","C":"4"},"ready":{"log":"up","port":0},"restart":"always","health":{"tcp":"1","retries":2},"secret_env":["TOKEN"],"masked":["health"]}`,
		`{"env":{"A":null,"TOKEN":null},"health":{"tcp":2}}`:           `{"command":"run","args":["x"],"env":{"B":"2"},"ready":{"log":"up","port":0},"restart":"always","health":{"tcp":"2"}}`,
		`{"env":null,"health":null,"ready":null}`:                      `{"command":"run","args":["x"],"restart":"always"}`,
		`{"command":null,"restart":null,"group":null,"args":null}`:     `{"command":"run","env":{"A":"1","B":"2"},"ready":{"log":"up","port":0},"health":{"tcp":"1","retries":2},"secret_env":["TOKEN"],"masked":["health"]}`,
		`{"ready":{"port":1},"env":{},"health":{"tcp":"3"}}`:           `{"command":"run","args":["x"],"env":{"A":"1","B":"2"},"ready":{"port":1},"restart":"always","health":{"tcp":"3"},"secret_env":["TOKEN"]}`,
		`{"ready":{"log":null,"http":"/"},"health":null,"args":["y"]}`: `{"command":"run","args":["y"],"env":{"A":"1","B":"2"},"ready":{"http":"/"},"restart":"always","secret_env":["TOKEN"]}`,
	} {
		var base, over Definition
		stdiotest.NoErr(t, json.Unmarshal([]byte(stored), &base))
		stdiotest.NoErr(t, decode(given, &over))
		got, err := json.Marshal(base.override(over, "/"))
		if err != nil || string(got) != want {
			t.Errorf("%s: got\n%s, %v; want\n%s", given, got, err, want)
		}
	}
}
