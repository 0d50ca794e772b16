package logstore_test

import (
	"context"
	"fmt"
	"time"

	"pmcp/logstore"
)

// Capture takes bytes as they are read. Their lines can be read and searched at once, before
// anything is on disk.
func Example() {
	ctx := context.Background()
	store, err := logstore.Open(ctx, logstore.Options{}) // in memory
	if err != nil {
		fmt.Println(err)
		return
	}
	defer store.Close()

	run, number, _ := store.NewRun("/srv/shop", "web")
	store.Capture(run, logstore.Stdout, time.Now(), []byte("\x1b[32mlisten"))
	store.Capture(run, logstore.Stdout, time.Now(), []byte("ing\x1b[0m on 8000\nGET /\n"))
	store.Capture(run, logstore.Stderr, time.Now(), []byte("ERROR no such page\n"))

	page, err := store.Read(ctx, logstore.Query{Project: "/srv/shop", Names: []string{"web"}, Limit: 2})
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, l := range page.Lines {
		fmt.Printf("run %d line %d: %s\n", number, l.Number, l.Text)
	}
	// The lines after the cursor.
	page, err = store.Read(ctx, logstore.Query{Names: []string{"web"}, After: page.Next()})
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, l := range page.Lines {
		fmt.Printf("run %d line %d, %s: %s\n", number, l.Number, l.Level, l.Text)
	}
	// Output:
	// run 1 line 1: listening on 8000
	// run 1 line 2: GET /
	// run 1 line 3, error: ERROR no such page
}

// Search returns each match together with the lines around it.
func ExampleStore_Search() {
	ctx := context.Background()
	store, err := logstore.Open(ctx, logstore.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer store.Close()
	run, _, _ := store.NewRun("/srv/shop", "build")
	store.Capture(run, logstore.Stdout, time.Now(), []byte("compiling a.c\ncompiling b.c\nb.c:3: warning: unused\ndone\n"))

	found, err := store.Search(ctx, logstore.SearchQuery{Text: `\w+\.c:\d+`, Regexp: true, Context: 1})
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, hit := range found.Hits {
		fmt.Println("-", hit.Preceding[0].Text)
		fmt.Println(">", hit.Text)
		fmt.Println("-", hit.Following[0].Text)
	}
	// Output:
	// - compiling b.c
	// > b.c:3: warning: unused
	// - done
}
