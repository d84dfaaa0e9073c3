#include "device/transform.hpp"

#include <algorithm>
#include <boost/test/unit_test.hpp>
#include <cstring>
#include <random>
#include <vector>

namespace cenote::transform {

namespace {

using bytes = std::vector<std::byte>;

bytes noise(std::size_t size, std::uint32_t seed) {
  std::mt19937_64 random(seed);
  bytes made(size);
  for (std::size_t i = 0; i < size; i += sizeof(std::uint64_t)) {  // a sanitizer makes each draw dear
    const std::uint64_t word = random();
    std::memcpy(&made[i], &word, std::min(sizeof word, size - i));
  }
  return made;
}

/// An engine with `layers` tensors of (2, blocks, runs, run_bytes + gap): keys and values of a block lie far apart, and
/// its runs do not touch each other.
struct engine {
  engine(std::size_t layers, std::size_t block_count, std::size_t run_count, std::size_t bytes_of_run, std::size_t gap)
      : blocks(block_count), runs(run_count), run_bytes(bytes_of_run), run_stride(bytes_of_run + gap) {
    for (std::size_t i = 0; i < layers; ++i) {
      tensors.push_back(noise(2 * blocks * runs * run_stride, static_cast<std::uint32_t>(i)));
    }
  }
  std::vector<strided_piece> pieces() {
    std::vector<strided_piece> made;
    for (bytes& tensor : tensors) {
      for (std::size_t half : {0, 1}) {
        made.push_back({tensor.data() + half * tensor.size() / 2, runs * run_stride, run_bytes, runs, run_stride});
      }
    }
    return made;
  }
  [[nodiscard]] std::size_t block_bytes() const { return tensors.size() * 2 * runs * run_bytes; }
  /// What block `index` looks like in the cache.
  [[nodiscard]] bytes block(std::size_t index) const {
    bytes made;
    for (const bytes& tensor : tensors) {
      for (std::size_t half : {0, 1}) {
        for (std::size_t run = 0; run < runs; ++run) {
          const auto* from = tensor.data() + half * tensor.size() / 2 + (index * runs + run) * run_stride;
          made.insert(made.end(), from, from + run_bytes);
        }
      }
    }
    return made;
  }

  std::size_t blocks, runs, run_bytes, run_stride;
  std::vector<bytes> tensors;
};

std::vector<std::byte*> places(bytes& memory, std::size_t block_bytes, std::size_t offset = 0) {
  std::vector<std::byte*> made;
  for (std::size_t at = offset; at + block_bytes <= memory.size(); at += block_bytes) made.push_back(&memory[at]);
  return made;
}

/// Small and large, so that they are copied by one thread and by several, through the caches and past them.
const std::vector<std::pair<std::size_t, std::size_t>> shapes{{1, 48}, {3, 100}, {4, 4096}, {2, 70'001}};

}  // namespace

BOOST_AUTO_TEST_SUITE(transforms)

BOOST_AUTO_TEST_CASE(gather_lays_the_pieces_of_a_block_back_to_back) {
  for (const auto& [runs, run_bytes] : shapes) {
    for (const unsigned threads : {0U, 1U, 3U}) {
      engine from(4, 24, runs, run_bytes, 16);
      const std::vector<std::uint64_t> indices{23, 0, 7, 8, 11, 2, 19};
      bytes cache(indices.size() * from.block_bytes());
      gather(from.pieces(), indices, places(cache, from.block_bytes()), threads);
      for (std::size_t i = 0; i < indices.size(); ++i) {
        const auto begin = cache.begin() + static_cast<std::ptrdiff_t>(i * from.block_bytes());
        BOOST_TEST(std::ranges::equal(from.block(indices[i]), std::span(begin, from.block_bytes())));
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(scatter_writes_these_blocks_and_nothing_between_them) {
  for (const auto& [runs, run_bytes] : shapes) {
    for (const unsigned threads : {0U, 1U, 3U}) {
      engine to(4, 24, runs, run_bytes, 16);
      const engine source(4, 24, runs, run_bytes, 0);
      const std::vector<std::uint64_t> indices{5, 22, 6, 0};
      engine expected = to;
      bytes cache;
      for (const std::uint64_t index : indices) std::ranges::copy(source.block(index), std::back_inserter(cache));
      for (std::size_t i = 0; i < to.tensors.size(); ++i) {
        for (const std::uint64_t index : indices) {
          for (std::size_t half : {0, 1}) {
            for (std::size_t run = 0; run < runs; ++run) {
              const std::size_t place = index * runs + run;
              const auto& given = source.tensors[i];
              auto& wanted = expected.tensors[i];
              std::copy_n(given.data() + half * given.size() / 2 + place * run_bytes, run_bytes,
                          wanted.data() + half * wanted.size() / 2 + place * expected.run_stride);
            }
          }
        }
      }
      const auto targets = places(cache, to.block_bytes());
      scatter(to.pieces(), indices, std::vector<const std::byte*>(targets.begin(), targets.end()), threads);
      for (std::size_t i = 0; i < to.tensors.size(); ++i) BOOST_TEST((to.tensors[i] == expected.tensors[i]));
    }
  }
}

BOOST_AUTO_TEST_CASE(copies_of_any_size_and_alignment_are_whole_and_touch_no_neighbour) {
  const std::vector<std::uint64_t> sizes{0, 1, 63, 64, 65, 1023, 1024, 1089, 16'384, 262'143, 262'144, 5'000'000, 3};
  bytes source = noise(6'000'000, 1);
  for (const std::size_t skew : {0, 1, 31, 64}) {
    std::vector<bytes> kept(sizes.size());
    std::vector<std::byte*> to;
    std::vector<const std::byte*> from;
    for (std::size_t i = 0; i < sizes.size(); ++i) {
      kept[i].resize(sizes[i] + 2 * 128, std::byte{0xEE});
      to.push_back(kept[i].data() + 128 - skew);
      from.push_back(source.data() + 17 * i);
    }
    copy_each(to, from, sizes, 2);
    for (std::size_t i = 0; i < sizes.size(); ++i) {
      bytes expected(sizes[i] + 2 * 128, std::byte{0xEE});
      std::copy_n(from[i], sizes[i], expected.data() + 128 - skew);
      BOOST_TEST((kept[i] == expected), "size " << sizes[i] << ", skew " << skew);
    }
  }
}

BOOST_AUTO_TEST_CASE(some_layers_move_to_their_place_in_the_block_and_leave_the_rest) {
  engine from(4, 8, 3, 100, 16);
  const std::vector<std::uint64_t> indices{6, 1};
  const auto pieces = from.pieces();
  const std::uint64_t layer_bytes = from.block_bytes() / 4;
  bytes cache(indices.size() * from.block_bytes(), std::byte{0xEE});
  gather(std::span(pieces).subspan(2, 4), indices, places(cache, from.block_bytes()), 1, layer_bytes);
  for (std::size_t i = 0; i < indices.size(); ++i) {
    bytes expected = from.block(indices[i]);
    std::fill_n(expected.begin(), layer_bytes, std::byte{0xEE});
    std::fill_n(expected.end() - static_cast<std::ptrdiff_t>(layer_bytes), layer_bytes, std::byte{0xEE});
    const auto begin = cache.begin() + static_cast<std::ptrdiff_t>(i * from.block_bytes());
    BOOST_TEST(std::ranges::equal(expected, std::span(begin, from.block_bytes())));
  }
}

BOOST_AUTO_TEST_CASE(no_blocks_are_no_work) {
  engine from(1, 1, 1, 64, 0);
  gather(from.pieces(), {}, {}, 0);
  copy_each({}, {}, {}, 0);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace cenote::transform
