package mask

import (
	"strings"
	"testing"
)

// TestSecretsInConnectionStringsAreMasked checks that a secret setting within the value of an
// environment variable, such as a connection string, is masked wherever it is printed.
func TestSecretsInConnectionStringsAreMasked(t *testing.T) {
	for value, secret := range map[string]string{
		"Server=db;User Id=sa;Password=Str0ng-Pw-1":                                                                  "Str0ng-Pw-1",
		"Server=tcp:db,1433;Pwd=Str0ng,Pw-2;Encrypt=True":                                                            "Str0ng,Pw-2",
		`Server=db;Password="semi;colon 3";Encrypt=True`:                                                             "semi;colon 3",
		"host=db user=a password=s3cretpass-4":                                                                       "s3cretpass-4",
		"host=db password='with blanks 5' user=a":                                                                    "with blanks 5",
		"jdbc:postgresql://db/x?user=a&password=s3cretpass-6":                                                        "s3cretpass-6",
		"jdbc:mysql://db/x?password=p%40ss-word-7&user=a":                                                            "p@ss-word-7",
		"jdbc:sqlserver://db:1433;user=sa;password=s3cretpass-8;encrypt=true":                                        "s3cretpass-8",
		"DefaultEndpointsProtocol=https;AccountName=x;AccountKey=bm90IGEgcmVhbCBrZXk+/A==;EndpointSuffix=core.x.net": "bm90IGEgcmVhbCBrZXk+/A==",
		"Endpoint=sb://x.servicebus.windows.net/;SharedAccessKeyName=Root;SharedAccessKey=bm90IGEga2V5IDk=":          "bm90IGEga2V5IDk=",
		"cache:6380,password=s3cretpass-10=,ssl=True,abortConnect=False":                                             "s3cretpass-10=",
		"https://example.com/hook?channel=a&token=s3cretpass-11&x=y":                                                 "s3cretpass-11",
		`{"ConnectionStrings":{"Default":"Server=db;Password=s3cretpass-12"}}`:                                       "s3cretpass-12",
		`PlainLoginModule required username="a" password="s3cretpass-13";`:                                           "s3cretpass-13",
		"api-key=s3cretpass-14,dataset=x":                                                                            "s3cretpass-14",
	} {
		m := New()
		m.LearnEnv(map[string]string{"ConnectionStrings__Default": value})
		if got, want := m.Text("with "+secret+"."), "with [masked ConnectionStrings__Default]."; got != want {
			t.Errorf("%s: got %s, want %s", value, got, want)
		}
		if got := m.Text(value); got == value || strings.Contains(got, secret) {
			t.Errorf("%s: got %s, want only its secret masked", value, got)
		}
	}
}

// TestPublicSettingsAreNotMasked checks that settings in environment variables that look secret but
// are not are left unmasked.
func TestPublicSettingsAreNotMasked(t *testing.T) {
	for _, value := range []string{
		"Server=database-host;User Id=administrator;Password=postgres;Database=inventory",
		"host=database-host password=short user=administrator", "host=database-host passfile=/home/somebody/.pgpass sslmode=verify-full",
		"jdbc:postgresql://database-host/x?user=administrator&password=${DB_PASSWORD}", "Server=x;Password=$DB_PASSWORD;", "Server=x;Password=********",
		"https://example.com/?password={db_password}&x=y", "dbname=x password=%(db_password)s", "x;password=<your-password>;", "x;password={{ db_password }};",
		"x;password=/run/secrets/db.txt;", "x;token_url=https://example.com/oauth/token", "x;max_tokens=100000000;tokenizer=sentencepiece",
		"the password is administrator", "password: administrator", "password = administrator", "xpassword/administrator=reader", "$password=administrator",
		"() {  local password=administrator; token=$(administrator)\n}", "no password=", "=administrator", "a=b=administrator", "SharedAccessKeyName=RootManageSharedAccessKey",
		"bypass=administrator", "compass=administrator", "keys=administrator", "-Wl,-z,relro -fpass-plugin=administrator", "passes=administrator",
		strings.Repeat("a", maxSettingName) + "_password=administrator", "",
	} {
		m := New()
		m.LearnEnv(map[string]string{"SETTINGS": value, "BASH_FUNC_x%%": value})
		text := value + " administrator database-host inventory reader sentencepiece verify-full RootManageSharedAccessKey db_password"
		if got := m.Text(text); got != text {
			t.Errorf("%s: got %s, want it unchanged", value, got)
		}
	}
}

// TestSecretSettingsInArgumentsAreMasked checks that secret settings within a command-line
// argument, and values of secret options in camel case, are masked.
func TestSecretSettingsInArgumentsAreMasked(t *testing.T) {
	for line, want := range map[string]string{
		"redis-server|--requirepass|s3cretpass-1":                                      "redis-server --requirepass [masked --requirepass]",
		"x|--clientSecret|s3cretpass-2|--dbPassword=s3cretpass-3":                      "x --clientSecret [masked --clientSecret] --dbPassword=[masked --dbPassword]",
		"x|--accessToken|s3cretpass-4|-storepass|s3cretpass-5":                         "x --accessToken [masked --accessToken] -storepass [masked -storepass]",
		"x|--node-password|s3cretpass-8|--nosql-password=s3cretpass-9":                 "x --node-password [masked --node-password] --nosql-password=[masked --nosql-password]",
		"java|-Djavax.net.ssl.keyStorePassword=s3cretpass-6|x":                         "java -Djavax.net.ssl.keyStorePassword=[masked -Djavax.net.ssl.keyStorePassword] x",
		"kubectl|create|--from-literal=password=s3cretpass-7|--from-literal=user=a":    "kubectl create --from-literal=password=[masked password] --from-literal=user=a",
		"kubectl|create|--from-literal|db_password=correcthorse":                       "kubectl create --from-literal db_password=[masked db_password]",
		"helm|--set|auth.password=correcthorse,auth.username=somebody":                 "helm --set auth.password=[masked auth.password],auth.username=somebody",
		"psql|host=db user=a password=correcthorse":                                    "psql host=db user=a password=[masked password]",
		"app|--connection=Server=db;User Id=sa;Password=s3cretpass-9":                  "app --connection=Server=db;User Id=sa;Password=[masked Password]",
		"curl|http://x/login?user=a&password=correcthorse":                             "curl http://x/login?user=a&password=[masked password]",
		"sh|-c|curl 'http://x/?token=s3cretpass-10'; x --from-literal=token=s3cret-11": "sh -c curl 'http://x/?token=[masked token]'; x --from-literal=token=[masked token]",
		"curl|--user|me:s3cretpass-13|-X|POST":                                         "curl --user me:[masked password] -X POST",
		"curl|-u|me:correcthorse|http://x":                                             "curl -u me:[masked password] http://x",
		"curl|-ume:correcthorse|http://x":                                              "curl -ume:[masked password] http://x",
		"sh|-c|/usr/bin/curl -s --user=me:correcthorse http://x ; jq .":                "sh -c /usr/bin/curl -s --user=me:[masked password] http://x ; jq .",
		"http|-a|me:correcthorse|GET|x":                                                "http -a me:[masked password] GET x",
		"curl|-H|X-Api-Key: q8Zk3Vx7Lm2":                                               "curl -H X-Api-Key: [masked X-Api-Key]",
		`curl|--data|{"password":"hunter2hunter2","user":"me"}`:                        `curl --data {"password":"[masked password]","user":"me"}`,
		`sh|-c|curl -d '{"token": "9f86d081884c"}' http://x`:                           `sh -c curl -d '{"token": "[masked token]"}' http://x`,
		"mysql|-h|db|-pcorrecthorse|x":                                                 "mysql -h db -p[masked password] x",
		"mysqldump|-uroot|-p'correct-horse'":                                           "mysqldump -uroot -p'[masked password]'",
		"sshpass|-p|correcthorse|ssh|x":                                                "sshpass -p [masked password] ssh x",
		"redis-cli|-a|correcthorse|ping":                                               "redis-cli -a [masked password] ping",
		"x|--" + strings.Repeat("very.", 8) + "password=s3cretpass-12":                 "x --" + strings.Repeat("very.", 8) + "password=[masked password]",
	} {
		m := New()
		m.LearnArgs(strings.Split(line, "|")...)
		if got := m.Text(strings.ReplaceAll(line, "|", " ")); got != want {
			t.Errorf("got %s, want\n%s", got, want)
		}
	}
}

// TestPublicArgumentsAreNotMasked checks that command-line arguments that look secret but are not
// are left unmasked.
func TestPublicArgumentsAreNotMasked(t *testing.T) {
	for _, line := range []string{
		"helm|--set|auth.existingSecret=database-credentials|--set|imagePullSecret=registry-of-images", "ansible-playbook|--ask-pass|playbook-of-site|--ask-become-pass|inventory-2",
		"psql|--no-password|inventory-2|-w", "x|--noPassword|inventory-2|--askPassword|inventory-2", "x|--maxTokens|100000000|--tokenizer=sentencepiece-2",
		"python|-c|password=getpass.getpass2(prompt)|password=read_password2()", "python|-c|connect(user='a1',password=DB_PASSWORD,token=read_token2()) ; read_token2",
		"sh|-c|password=inventory-2; export token=inventory-2", "sh|-c|kubectl create --from-literal=password=$DB_PASSWORD --from-literal=token=$(make_token2 x)",
		"x|--primaryKey=inventory-2|--cacheKey|inventory-2|--keyStore=inventory-2.jks|--compass|inventory-2|--bypass|inventory-2", "docker|--mount=type=secret,id=inventory-2",
		"docker|run|-u|somebody:administrators|image|mysql|-uinventory-2|--port|33061234", "curl|-u|somebody:$PASSWORD|-X|inventory-2", "psql|-p|54321234|-U|inventory-2", "mysql|-p|inventory-2", "mkdir|-p|inventory-2",
		"x|-Djavax.net.ssl.keyStorePassword=changeit", "kubectl|--from-literal=password=postgres|--from-file=token=./token.txt", "x|a=b=inventory-2|--url=http://x/?tokens=inventory-2",
	} {
		m := New()
		m.LearnArgs(strings.Split(line, "|")...)
		if text := strings.ReplaceAll(line, "|", " "); m.Text(text) != text {
			t.Errorf("got %s, want %s", m.Text(text), text)
		}
	}
}

// TestPasswordEqualToNameIsNotMasked checks that a password equal to the name of the user or the
// database in its URL or connection string is not masked elsewhere, and that a password that only
// resembles such a name is masked.
func TestPasswordEqualToNameIsNotMasked(t *testing.T) {
	for value, masked := range map[string]bool{
		"postgres://myapp_dev:myapp_dev@localhost/myapp_dev": false, "postgres://myapp_dev:myapp_dev@localhost": false, "postgres://a:myapp_dev@h1,h2/myapp_dev?x=y": false,
		"postgres://a:myapp%5fdev@localhost/myapp_dev": false, "Server=db;User Id=myapp_dev;Password=myapp_dev": false, "host=db dbname=myapp_dev password=myapp_dev": false,
		"jdbc:postgresql://db/myapp_dev?user=a&password=myapp_dev": false, "jdbc:postgresql://db/x?user=myapp_dev&password=myapp_dev": false,
		"https://h/?name=myapp_dev&token=myapp_dev": true, "amqp://a:b1@h1/x,amqp://c:myapp_dev@h2/y": true,
		"postgres://myapp_dev2:myapp_dev@localhost/myapp": true, "postgres://a:myapp_dev@localhost/b/myapp_dev": true, "postgres://a:myapp_dev@myapp_dev/b": true,
		"postgres://a:myapp_dev@h1,postgres://a:myapp_dev@h2": true, "host=myapp_dev password=myapp_dev": true, "password=myapp_dev;old_password=myapp_dev": true,
	} {
		m := New()
		m.LearnEnv(map[string]string{"DATABASE_URL": value})
		m.LearnArgs("--db", value)
		const text = `database "myapp_dev" does not exist`
		if got := m.Text(text); (got != text) != masked {
			t.Errorf("%s: got %s, want it masked: %t", value, got, masked)
		}
	}
	m := New()
	m.LearnEnv(map[string]string{"DATABASE_URL": "postgres://myapp_dev:myapp_dev@localhost/myapp_dev"})
	if got := m.Text("postgres://myapp_dev:myapp_dev@localhost/myapp_dev"); got != "postgres://myapp_dev:[masked password]@localhost/myapp_dev" {
		t.Errorf("got %s, want only the password masked", got)
	}
}

// TestValueOfSecretSettingIsNotSearchedAgain checks that the value of a secret setting is not
// itself searched for settings.
func TestValueOfSecretSettingIsNotSearchedAgain(t *testing.T) {
	m := New()
	m.LearnEnv(map[string]string{"X": strings.Repeat("password=", 2000)})
	if len(m.known) > 10 {
		t.Errorf("got %d learned values, want at most 10", len(m.known))
	}
}
