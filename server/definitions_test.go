package server

import (
	"encoding/json"
	"testing"
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
