package mask

import (
	"fmt"
	"strings"
	"testing"
)

// TestNamedSecretsAreMasked checks that a value that looks like a secret and follows the name of a
// secret is masked, wherever in its line the value is.
func TestNamedSecretsAreMasked(t *testing.T) {
	for text, secret := range map[string]string{
		// These are dumps of variables, and env files.
		"DB_PASSWORD=s3cretpass-1": "s3cretpass-1", "export API_TOKEN=abcd1234efgh": "abcd1234efgh", "PASSWORD=Corr&ct!horse": "Corr&ct!horse", `SECRET_KEY="a1b2!c3$d4"`: "a1b2!c3$d4",
		"STRIPE_KEY=1234567890abcdefghij": "1234567890abcdefghij", "GH_PAT=9f86d081884c7d65": "9f86d081884c7d65", "SESSION_SALT=9f86d081884c7d65": "9f86d081884c7d65",
		"OTP_SEED=JBSWY3DPEHPK3PXP": "JBSWY3DPEHPK3PXP", "  - JWT_SECRET=my-dev-secret-2": "my-dev-secret-2", "declare -x NPM_TOKEN=\"0f1e2d3c4b5a\"": "0f1e2d3c4b5a",
		// Compose and YAML.
		"web-1  | DB_PASSWORD=hunter2hunter2": "hunter2hunter2", "      POSTGRES_PASSWORD: hunter2hunter2": "hunter2hunter2", "      - MYSQL_ROOT_PASSWORD=r00t-of-db": "r00t-of-db",
		"    token: 9f86d081884c7d65": "9f86d081884c7d65", "clientSecret: 'q8Zk3-Vx7Lm2'": "q8Zk3-Vx7Lm2", "api_key: \"q8Zk3Vx7Lm2\"": "q8Zk3Vx7Lm2", "db_pass: hunter2hunter2": "hunter2hunter2",
		// JSON, also within JSON.
		`{"password":"hunter2hunter2","user":"me"}`: "hunter2hunter2", `  "apiKey": "q8Zk3Vx7Lm2",`: "q8Zk3Vx7Lm2", `{"a":{"client_secret":"q8Zk3Vx7Lm2"}}`: "q8Zk3Vx7Lm2", `{"token":"9f86d081884c"}`: "9f86d081884c",
		`{"body":"{\"password\":\"hunter2hunter2\"}"}`: "hunter2hunter2", `{"accessToken" : "9f86d081884c"}`: "9f86d081884c", `{'secret': 'q8Zk3Vx7Lm2'}`: "q8Zk3Vx7Lm2", `{"password"=>"hunter2hunter2"}`: "hunter2hunter2",
		// URLs and connection strings.
		"GET /callback?state=1&token=9f86d081884c HTTP/1.1": "9f86d081884c", "open http://localhost:8888/?token=3f786850e387550fdab8": "3f786850e387550fdab8",
		"jdbc:postgresql://db/x?user=a&password=hunter2hunter2&ssl=true": "hunter2hunter2", "Server=db;User Id=sa;Password=Str0ng-Pw-1;Encrypt=True": "Str0ng-Pw-1",
		"AccountName=x;AccountKey=bm90IGEgcmVhbCBrZXk9aB3+/A==;EndpointSuffix=x": "bm90IGEgcmVhbCBrZXk9aB3+/A==", "host=db password=hunter2hunter2 user=a": "hunter2hunter2",
		// Settings, headers, prose.
		"password = \"hunter2hunter2\"": "hunter2hunter2", "aws_secret_access_key = wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY": "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
		"> X-Api-Key: q8Zk3Vx7Lm2": "q8Zk3Vx7Lm2", "x-auth-token: 9f86d081884c7d65": "9f86d081884c7d65", "Generated admin password: Xk3mQ9zL": "Xk3mQ9zL", "new token: 9f86d081884c7d65": "9f86d081884c7d65",
		"level=info token=9f86d081884c7d65 user=me": "9f86d081884c7d65", "--secret-key=q8Zk3Vx7Lm2": "q8Zk3Vx7Lm2",
	} {
		for before := range 2 * maxStride {
			m := New()
			prefix := ""
			if before > 0 {
				prefix = strings.Repeat(" ", before)
				if strings.Contains(text, "|") || strings.HasPrefix(text, "{") {
					prefix = strings.Repeat(".", before-1) + " "
				}
			}
			got := m.Text(prefix + text)
			start := len(prefix) + strings.Index(text, secret)
			if !strings.HasPrefix(got, (prefix + text)[:start]+"[masked ") || !strings.HasSuffix(got, "]"+text[start-len(prefix)+len(secret):]) {
				t.Errorf("%s: got %s, want a mask for the value alone", prefix+text, got)
				break
			}
			if again := m.Text(got); again != got {
				t.Errorf("%s: got %s when masked again, want it unchanged", got, again)
			}
		}
	}
}

// TestPublicNamedValuesAreNotMasked checks that a value after the name of a secret is not masked if
// the value is not secret.
func TestPublicNamedValuesAreNotMasked(t *testing.T) {
	m := New()
	for _, text := range []string{
		// Compiler output, types and code.
		"SyntaxError: Unexpected token: Identifier2", "token: Identifier", "error: unexpected token: `foo1bar2`", "line 1:8 token recognition error at: '#x1y2'", "Unexpected token: punc (})",
		"password: string;", "  token?: string | undefined", "token: Uint8Array", "secret: Base64String;", "accessToken: Promise<Int32Array>", "password: String!", "interface Login { password: string; token2: number }",
		"const token = getToken2(user1)", "password = user2.password", "  token: this.props.token2,", "  password: process.env.DB_PASSWORD2,", "token := lexer.Next2()", "if token == expected12 {", "secret => secret2secret",
		"+  token: ${{ secrets.GITHUB_TOKEN2 }}", "DB_PASSWORD=${DB_PASSWORD:-changeme1}", "API_TOKEN=$API_TOKEN2", "password: {{ db_password2 }}", "password: %(db_password2)s", "token=<your-token-1>", "api_key: your-api-key-123",
		"PASSWORD=xxxxxxxx1", "password=********", "password: [FILTERED]", "\"password\":\"[REDACTED]\"", "token: '***'", "Token(type=IDENT, value='x1y2z3a4')", "Token: T_STRING at line 12", "password: required",
		// Configuration.
		"TOKEN_TTL=3600", "ACCESS_TOKEN_EXPIRES=1767600000000", "TOKEN_URL=https://auth.example.com/oauth2/token", "PASSWORD_MIN_LENGTH=00000012", "max_tokens=100000000", "tokens: 1234567890", `"totalTokens": 12345678`,
		"token: 1767600000000", "SECRET_NAME=db-credentials-2", "secretName: my-app-tls-2", "existingSecret: my-app-secret-2", "imagePullSecret: registry-of-images2", "AUTH_METHOD=oauth2-pkce", "password_encryption = scram-sha-256",
		"authenticator=org.example.Auth2Plugin", "token: 2026-01-05T10:00:00Z", "secret: my-app-tls-2", "secret/my-app-tls-2 created", "  token: kubernetes-dashboard-token-2", "  password: 16 bytes", "  token:      1234 bytes",
		`"key": "value1value2"`, "key: node-cache-Linux-x64-9f86d081884c7d65", "Cache restored from key: Linux-node-3f786850e387550f", "primary_key=order_id_12345678", "cacheKey=9f86d081884c7d65", "partition_key: user1234abcd",
		"PRIVATE_KEY=/etc/ssl/private/server2.key", "private_key: ./certs/server2.pem", "ssl_key=certs/server2.key", "token: 0x7ffee3b012", "SSH_AUTH_SOCK=/tmp/ssh-abc123/agent.1",
		// Output of programs.
		"commit 3f786850e387550fdab836ed7e6dc881de23001b", "author=Some Body <me2@example.com>", "Author: me2me2me2 <me@example.com>", "author=somebody12", "authority: example12.com:443", "resolved \"https://registry.yarnpkg.com/js-tokens/-/js-tokens-4.0.0.tgz#19203fb59991df98e3a287050d4647cdeaf32499\"",
		"js-tokens: 4.0.0-beta.12", "+ js-tokens@4.0.0", "npm http fetch GET 200 https://registry.npmjs.org/token-types 12ms", "integrity sha512-RdJUflcE3cUzKiMqQgsCu06FPu9UdIJO0beYbPhHN4k6apgJtifcoCtT9bcxOpYBtpD2kCM6Sbzg4CausW/PKQ==",
		"<input type=\"password\" name=\"password\" id=\"password2\">", "<label for=\"password2\">Password:</label> <input value=\"\">", `<input name="csrf_token" type="hidden">`, "Password: ", "Enter passphrase for key '/home/me/.ssh/id_ed25519': ",
		"Invalid password: must have 8 characters", `{"password":["must be at least 8 characters"]}`, `"password": "Das Passwort hat 8 Zeichen"`, `"tokenType":"Bearer2Token"`, `{"error":"invalid_token","token_type":"bearer"}`,
		"passport: authentication failed for user2user2", "JWT verification failed: token expired at 2026-01-05T10:00:00.000Z", "token verified for user 1234abcd", "password changed by admin12", "[auth] session token: refreshed2x", "auth=success2x session=ok",
		"ok   github.com/x/token2/secret 0.012s", "--- PASS: TestToken/secret=valid (0.00s)", "=== RUN   TestPassword/password:_too_short_8", "PASS: TestSecretKey2Rotation", "test password::tests::hash_v2 ... ok", "    --token string   the token (default \"abc\")",
		"secret_key_ref: {name: db2, key: password2}", "secretKeyRef:", "automountServiceAccountToken: false", "token-controller: synced 12 objects", "Mounts: /var/run/secrets/kubernetes.io/serviceaccount from kube-api-access-x7k2p (ro)",
		"remote: Support for password authentication was removed on August 13, 2021.", "password=short1", "Using password: YES", "Access denied for user 'app'@'172.18.0.1' (using password: YES)", "api_key: true", "token=null", "accessKey: undefined",
		"src/auth/token.ts:12:34 - error TS2322: Type 'string' is not assignable to type 'Token2'.", "./src/secret:12:5: undefined: token2secret", "passwords: 12345678", "secrets=12345678a", "bypass: module2module", "compass=north-by-west-2",
	} {
		if got := m.Text(text); got != text {
			t.Errorf("%s: got %s, want it unchanged", text, got)
		}
		for _, around := range []string{"  %s", "2026-01-05T10:00:00Z INFO %s", "web-1  | %s", "\t%s,"} {
			if around := fmt.Sprintf(around, text); m.Text(around) != around {
				t.Errorf("%s: got %s, want it unchanged", around, m.Text(around))
			}
		}
	}
}

// TestNamedSecretsAreMaskedInPieces checks that two pieces of a line are masked like the whole
// line, wherever the line is cut within or before a secret value.
func TestNamedSecretsAreMaskedInPieces(t *testing.T) {
	m := New()
	for _, hidden := range []string{"DB_PASSWORD=hunter2hunter2", `"client_secret":"q8Zk3Vx7Lm2"`, "token: 9f86d081884c7d65", `\"password\":\"hunter2hunter2\"`, "?token=9f86d081884c", "Password=Str0ng-Pw-1;x=y"} {
		for _, around := range []string{"%s", "say %s and on", "{%s, x}"} {
			text := fmt.Sprintf(around, hidden)
			want := m.Text(text)
			if want == text {
				t.Errorf("%s: got it unmasked, want a mask", text)
			}
			begins := strings.LastIndexAny(text[:strings.Index(want, "[masked ")], "=:") + 1
			for at := range len(text) + 1 {
				if got := inPieces(m, text, at, true); got != want && (at > begins && text[at-1] != ' ' || at < strings.IndexAny(text, "DctpP")) {
					t.Errorf("%s| |%s: got %s, want %s", text[:at], text[at:], got, want)
				}
			}
		}
	}
	for _, prompt := range []string{"Password: ", "DB_PASSWORD=hunter2hunter2 ", "token: abc, "} {
		l := m.Lines()
		if got := l.SafePrefix([]byte(prompt), false); got != len(prompt) {
			t.Errorf("%q: got %d bytes at a pause, want all", prompt, got)
		}
	}
}
