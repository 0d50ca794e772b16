// Package offered reads which programs the files of a directory offer: scripts of package.json
// and of its workspaces, a Procfile, the launch and task files of editors. Services of compose
// files are only named.
//
// It guarantees that reading runs and writes nothing, that it never blocks, and that a file
// which cannot be used becomes one note and hides no other file. It refuses files over 1 MiB,
// and it watches nothing: each Read opens the files again.
package offered
