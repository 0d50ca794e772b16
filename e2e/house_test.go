package e2e

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestHouse checks what says something about the design: no struct has two mutexes, a tool
// decodes, makes one call and encodes, one package splits streams into messages, and a context
// carries no data.
// TestImportsMatchTable checks who may import what. All else is judged by reading.
func TestHouse(t *testing.T) {
	reach := regexp.MustCompile(`\bs\.o\.(Manager|Store|Health|Groups)\b`)
	for path, source := range sources(t) {
		dir, base := filepath.ToSlash(filepath.Dir(path)), filepath.Base(path)
		file, err := parser.ParseFile(token.NewFileSet(), path, source, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, func(n ast.Node) bool {
			if s, ok := n.(*ast.StructType); ok && mutexesOf(s) > 1 {
				t.Errorf("%s: a struct has %d mutexes, want at most 1", path, mutexesOf(s))
			}
			return true
		})
		if (dir == "server/stdio" || dir == "server/upstream") && strings.Contains(source, `"bufio"`) {
			t.Errorf("%s: splits a stream itself, want the one jsonrpc.Reader of both directions", path)
		}
		allowed := 0
		if path == "server/upstream/http.go" { // mcp-go's transport passes nothing else through
			allowed = 1
		}
		if n := strings.Count(source, "context.WithValue("); n != allowed {
			t.Errorf("%s: puts %d values into a context, want %d: they are parameters and results", path, n, allowed)
		}
		if dir == "server" && strings.HasPrefix(base, "tool_") {
			for _, found := range reach.FindAllString(source, -1) {
				t.Errorf("%s: a tool reaches %s, want one call of server/project", path, found)
			}
		}
	}
}

// sources yields the path, relative to the top, and the text of every Go file that is no test.
func sources(t *testing.T) map[string]string {
	t.Helper()
	all := make(map[string]string)
	err := filepath.WalkDir("..", func(path string, d fs.DirEntry, err error) error {
		name := d.Name()
		switch {
		case err != nil:
			return err
		case d.IsDir() && path != ".." && (strings.HasPrefix(name, ".") || name == "testdata" || name == "e2e"):
			return filepath.SkipDir
		case !d.IsDir() && strings.HasSuffix(name, ".go") && !strings.HasSuffix(name, "_test.go"):
			relative, err := filepath.Rel("..", path)
			if err != nil {
				return err
			}
			text, err := os.ReadFile(path)
			all[relative] = string(text)
			return err
		}
		return nil
	})
	if err != nil || len(all) < 100 {
		t.Fatalf("got %d files and error %v, want those of the project", len(all), err)
	}
	return all
}

// mutexesOf returns how many fields of a struct are mutexes.
func mutexesOf(s *ast.StructType) (n int) {
	for _, f := range s.Fields.List {
		if x, ok := f.Type.(*ast.SelectorExpr); ok && slices.Contains([]string{"sync.Mutex", "sync.RWMutex"}, fmt.Sprint(x.X)+"."+x.Sel.Name) {
			n += max(1, len(f.Names))
		}
	}
	return n
}
