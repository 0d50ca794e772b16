package server

import (
	"encoding/json"
	"strings"
	"testing"

	"pmcp/logstore/mask"
)

func TestDefinitionsWithoutSecrets(t *testing.T) {
	for given, want := range map[string]string{
		`{"command":"npm run dev"}`:                                   `{"command":"npm run dev"}`,
		`{"command":"PORT=1 npm run dev"}`:                            `{"command":"PORT=1 npm run dev"}`,
		`{"command":"API_KEY=k PORT=1 sh -c 'echo \"it'\\''s\"; x'"}`: `{"command":"sh -c 'echo \"it'\\''s\"; x'","env":{"PORT":"1"},"secret_env":["API_KEY"]}`,
		`{"command":"API_KEY=k PORT=1 node","env":{"PORT":"2"}}`:      `{"command":"node","env":{"PORT":"2"},"secret_env":["API_KEY"]}`,
		`{"command":"API_KEY=k","args":["x"]}`:                        `{"command":"API_KEY=k","args":["x"]}`, // a program of that name
		`{"command":"x","env":{"DB_PASS":"p","SSH_KEY":"k","MYSQL_PWD":"p","GPG_PASSPHRASE":"p","BYPASS":"1","PWD":"/","KEYS":"1"}}`: `{"command":"x","env":{"BYPASS":"1","KEYS":"1","PWD":"/"},"secret_env":["DB_PASS","GPG_PASSPHRASE","MYSQL_PWD","SSH_KEY"]}`,
	} {
		var a specArgs
		noErr(t, json.Unmarshal([]byte(given), &a))
		got, err := json.Marshal(a.withoutSecrets(t.TempDir(), nil))
		if err != nil || string(got) != want {
			t.Errorf("%s is stored as\n%s, %v; want\n%s", given, got, err, want)
		}
		if again, _ := json.Marshal(a); len(again) != len(given) {
			t.Errorf("%s was changed in place to %s", given, again)
		}
	}
}

// TestDefinitionsWithoutMasked: what is secret by its form is not stored, and the argument that
// held it has to be given again.
func TestDefinitionsWithoutMasked(t *testing.T) {
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
		var a specArgs
		noErr(t, json.Unmarshal([]byte(given), &a))
		got, err := a.withoutSecrets(t.TempDir(), m).masked(m)
		if err != nil || string(got) != want {
			t.Errorf("%s is stored as\n%s, %v; want\n%s", given, got, err, want)
		}
	}
	stored := specArgs{Command: "x", Args: []string{"[masked --token]"}, Masked: []string{"args", "health"}}
	for given, want := range map[string]string{
		`{}`: "args, health", `{"args":["y"]}`: "health", `{"command":"y"}`: "health", `{"command":"y","health":{"tcp":"1"}}`: "",
	} {
		over, err := stored.decodeOver([]byte(given), "/", func(base specArgs) (specArgs, error) {
			return base, json.Unmarshal([]byte(given), &base)
		})
		noErr(t, err)
		if got := strings.Join(over.Masked, ", "); got != want {
			t.Errorf("%s leaves %q missing, want %q", given, got, want)
		}
		if _, err := over.spec(t.Context(), "x", t.TempDir(), false); (err != nil) != (want != "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", given, err)
		}
	}
}
