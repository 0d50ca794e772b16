// Package pack compresses lines.
//
// A [Header] describes the lines. A [Stored] has their text and metadata, compressed or not, and a checksum over all of it
// and the header. [Packer.Unpack] returns either exactly what [Packer.Pack] was given or an error, whatever the bytes
// are, and allocates no more than [MaxBytes] for it.
package pack
