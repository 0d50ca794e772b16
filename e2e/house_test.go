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

// TestHouse keeps the shape of the code: how large a struct, a type's set of methods, a function
// and a package may become, what a tool may reach, and that one package reads lines of messages. Test
// files do not count.
func TestHouse(t *testing.T) {
	const (
		maxFields  = 20
		maxMutexes = 1
		maxMethods = 40 // of Server and of Store
		maxLines   = 60 // of a function, with its head
		maxBranch  = 25 // of a function
		maxWindows = 10 // lines about other windows in server and its packages other than server/project
	)
	maxFiles := map[string]int{"server": 41, "logstore": 46, "process": 42}

	methods, files, windows := map[string]int{}, map[string]int{}, 0
	reach := regexp.MustCompile(`\bs\.o\.(Manager|Store|Health|Groups)\b`)
	window := regexp.MustCompile(`(?i)foreign|elsewhere`)
	for path, source := range sources(t) {
		dir, base := filepath.ToSlash(filepath.Dir(path)), filepath.Base(path)
		files[dir]++
		fset := token.NewFileSet()
		file, err := parser.ParseFile(fset, path, source, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.TypeSpec:
				if s, ok := n.Type.(*ast.StructType); ok {
					if fields, mutexes := fieldsOf(s); fields > maxFields || mutexes > maxMutexes {
						t.Errorf("%s: %s has %d fields and %d mutexes, want at most %d and %d", path, n.Name.Name, fields, mutexes, maxFields, maxMutexes)
					}
				}
			case *ast.FuncDecl:
				if n.Recv != nil {
					methods[dir+"."+receiver(n)]++
				}
				lines := fset.Position(n.End()).Line - fset.Position(n.Pos()).Line + 1
				if branches := branchesOf(n); lines > maxLines || branches > maxBranch {
					t.Errorf("%s: %s has %d lines and %d branches, want at most %d and %d", path, n.Name.Name, lines, branches, maxLines, maxBranch)
				}
			}
			return true
		})
		if (dir == "server/stdio" || dir == "server/upstream") && strings.Contains(source, `"bufio"`) {
			t.Errorf("%s: splits a stream itself, want the one jsonrpc.Reader of both directions", path)
		}
		if dir == "server" && strings.HasPrefix(base, "tool_") {
			for _, found := range reach.FindAllString(source, -1) {
				t.Errorf("%s: a tool reaches %s, want one call of server/project", path, found)
			}
		}
		if (dir == "server" || strings.HasPrefix(dir, "server/")) && dir != "server/project" {
			for line := range strings.Lines(source) {
				if window.MatchString(line) {
					windows++
				}
			}
		}
	}
	for _, name := range []string{"server.Server", "logstore.Store"} {
		if methods[name] > maxMethods {
			t.Errorf("%s has %d methods, want at most %d", name, methods[name], maxMethods)
		}
	}
	for dir, most := range maxFiles {
		if files[dir] > most {
			t.Errorf("%s has %d files, want at most %d", dir, files[dir], most)
		}
	}
	if windows > maxWindows {
		t.Errorf("%d lines of server outside server/project are about other windows, want at most %d", windows, maxWindows)
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

// fieldsOf returns the number of fields of a struct and how many of them are mutexes.
func fieldsOf(s *ast.StructType) (fields, mutexes int) {
	for _, f := range s.Fields.List {
		n := max(1, len(f.Names))
		fields += n
		if x, ok := f.Type.(*ast.SelectorExpr); ok && slices.Contains([]string{"sync.Mutex", "sync.RWMutex"}, fmt.Sprint(x.X)+"."+x.Sel.Name) {
			mutexes += n
		}
	}
	return fields, mutexes
}

// receiver returns the name of a method's type.
func receiver(f *ast.FuncDecl) string {
	x := f.Recv.List[0].Type
	for {
		switch y := x.(type) {
		case *ast.StarExpr:
			x = y.X
		case *ast.IndexExpr:
			x = y.X
		case *ast.IndexListExpr:
			x = y.X
		default:
			return fmt.Sprint(x)
		}
	}
}

// branchesOf counts the places where a function may take one of two ways: if, for, case, && and ||.
func branchesOf(f *ast.FuncDecl) (n int) {
	ast.Inspect(f, func(node ast.Node) bool {
		switch node := node.(type) {
		case *ast.IfStmt, *ast.ForStmt, *ast.RangeStmt:
			n++
		case *ast.CaseClause:
			if node.List != nil {
				n++
			}
		case *ast.CommClause:
			if node.Comm != nil {
				n++
			}
		case *ast.BinaryExpr:
			if node.Op == token.LAND || node.Op == token.LOR {
				n++
			}
		}
		return true
	})
	return n
}
