package mask

import "testing"

// TestExemptTextsAreNotMasked checks that a value that is part of an exempt text is not masked,
// whether the value was learned before or after the call of Exempt.
func TestExemptTextsAreNotMasked(t *testing.T) {
	m := New()
	m.LearnEnv(map[string]string{"DB_PASSWORD": "wordpress", "API_TOKEN": "github.com/acme", "OTHER_TOKEN": "s3cr3t-enough"})
	m.Exempt("wordpress-db", "/home/me/src/github.com/acme/app", "short")
	m.LearnEnv(map[string]string{"MYSQL_PASSWORD": "wordpress", "LATER_TOKEN": "acme/app"})
	const text = "wordpress-db in /home/me/src/github.com/acme/app: wordpress, s3cr3t-enough"
	if got, want := m.Text(text), "wordpress-db in /home/me/src/github.com/acme/app: wordpress, [masked OTHER_TOKEN]"; got != want {
		t.Errorf("got %s\nwant %s", got, want)
	}
	var none *Masker
	none.Exempt("wordpress")
}

// TestSecretNameJudgesNamesOfVariables checks names of environment variables that mark a secret,
// and similar names that do not.
func TestSecretNameJudgesNamesOfVariables(t *testing.T) {
	for name, secret := range map[string]bool{
		"GOPRIVATE": false, "PRIMARY_KEY": false, "DB_FOREIGN_KEY": false, "AUTH_USER_MODEL": false, "SSH_PUBLIC_KEY": false,
		"GH_PAT": true, "SESSION_SALT": true, "OTP_SEED": true, "WALLET_SEED_PHRASE": true, "COMPAT": false, "RANDOM_SEED": false, "SEED": false, "SALT_ROUNDS": false, "PATH": false,
		"PRIVATE_KEY": true, "API_KEY": true, "AUTH_KEY": true, "MODEL_TOKEN": true,
	} {
		if SecretName(name) != secret {
			t.Errorf("%s: got %t, want %t", name, !secret, secret)
		}
	}
}
