package mask

import "testing"

// TestSpare: what is part of a name or a directory is no secret, whichever is
// known first.
func TestSpare(t *testing.T) {
	m := New()
	m.LearnEnv(map[string]string{"DB_PASSWORD": "wordpress", "API_TOKEN": "github.com/acme", "OTHER_TOKEN": "s3cr3t-enough"})
	m.Spare("wordpress-db", "/home/me/src/github.com/acme/app", "short")
	m.LearnEnv(map[string]string{"MYSQL_PASSWORD": "wordpress", "LATER_TOKEN": "acme/app"})
	const text = "wordpress-db in /home/me/src/github.com/acme/app: wordpress, s3cr3t-enough"
	if got, want := m.Text(text), "wordpress-db in /home/me/src/github.com/acme/app: wordpress, [masked OTHER_TOKEN]"; got != want {
		t.Errorf("%s\nwant %s", got, want)
	}
	var none *Masker
	none.Spare("wordpress")
}

// TestOpenNames: variables whose names only look secret.
func TestOpenNames(t *testing.T) {
	for name, secret := range map[string]bool{
		"GOPRIVATE": false, "PRIMARY_KEY": false, "DB_FOREIGN_KEY": false, "AUTH_USER_MODEL": false, "SSH_PUBLIC_KEY": false,
		"PRIVATE_KEY": true, "API_KEY": true, "AUTH_KEY": true, "MODEL_TOKEN": true,
	} {
		if SecretName(name) != secret {
			t.Errorf("%s: %v", name, !secret)
		}
	}
}
