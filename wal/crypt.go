package wal

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
)

// sealer encrypts the chunks of one segment. Each segment has its own key, derived from the log's key and
// a random salt, so the chunk number alone is a safe nonce: no number is used twice under one salt.
type sealer struct {
	keyID uint64
	salt  [16]byte
	aead  cipher.AEAD
}

func (s *sealer) nonce(number uint64) []byte {
	return binary.BigEndian.AppendUint64(make([]byte, 4, 12), number)
}

// keyring holds the log's key and the sealer last used for reading. Not safe for concurrent use.
type keyring struct {
	key  []byte
	id   uint64 // 0 without a key
	last *sealer
	buf  []byte
}

func newKeyring(key []byte) (*keyring, error) {
	k := &keyring{key: key}
	if len(key) > 0 {
		b, err := hkdf.Key(sha256.New, key, nil, "binrelay wal key id", 8)
		if err != nil {
			return nil, fmt.Errorf("wal: derive the key's id: %w", err)
		}
		k.id = binary.BigEndian.Uint64(b) | 1 // never 0, which means "not encrypted"
	}
	return k, nil
}

// sealer makes the sealer of a new segment, nil without a key.
func (k *keyring) sealer() (*sealer, error) {
	if k.id == 0 {
		return nil, nil
	}
	var salt [16]byte
	rand.Read(salt[:])
	return k.derive(salt)
}

func (k *keyring) derive(salt [16]byte) (*sealer, error) {
	b, err := hkdf.Key(sha256.New, k.key, salt[:], "binrelay wal segment", 32)
	if err != nil {
		return nil, fmt.Errorf("wal: derive a segment's key: %w", err)
	}
	block, err := aes.NewCipher(b)
	if err != nil {
		return nil, fmt.Errorf("wal: segment cipher: %w", err)
	}
	aead, err := cipher.NewGCM(block)
	if err != nil {
		return nil, fmt.Errorf("wal: segment cipher: %w", err)
	}
	return &sealer{keyID: k.id, salt: salt, aead: aead}, nil
}

// open returns the decrypted payload of c, valid until the next call.
func (k *keyring) open(c *storedChunk) ([]byte, error) {
	if err := k.check(c.keyID); err != nil {
		return nil, err
	}
	if k.last == nil || k.last.salt != c.salt {
		s, err := k.derive(c.salt)
		if err != nil {
			return nil, err
		}
		k.last = s
	}
	b, err := k.last.aead.Open(k.buf[:0], k.last.nonce(c.number), c.body, c.aad)
	if err != nil {
		return nil, fmt.Errorf("decrypt chunk %d: %w", c.number, err)
	}
	k.buf = b
	return b, nil
}

// check tells whether chunks with this key id (0: not encrypted) can be read.
func (k *keyring) check(id uint64) error {
	switch id {
	case 0, k.id:
		return nil
	}
	if k.id == 0 {
		return fmt.Errorf("%w: entries are encrypted (key id %016x) and no key was given", ErrKey, id)
	}
	return fmt.Errorf("%w: entries are encrypted with key id %016x, the given key has id %016x", ErrKey, id, k.id)
}
