package kafka

import "testing"

// TestMurmur2 has the values of Kafka's own UtilsTest.
func TestMurmur2(t *testing.T) {
	for key, want := range map[string]int32{
		"21": -973932308, "foobar": -790332482, "a-little-bit-long-string": -985981536,
		"a-little-bit-longer-string": -1486304829, "lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
		"abc": 479470107,
	} {
		if got := int32(murmur2([]byte(key))); got != want {
			t.Errorf("murmur2(%q) = %d, want %d", key, got, want)
		}
	}
	if got := partitionFor([]byte("foobar"), 7); got != (-790332482&0x7fffffff)%7 {
		t.Errorf("partitionFor = %d", got)
	}
	for n := int32(1); n < 50; n++ {
		for i := range 200 {
			if p := partitionFor([]byte{byte(i), byte(n)}, n); p < 0 || p >= n {
				t.Fatalf("partition %d of %d", p, n)
			}
		}
	}
}
