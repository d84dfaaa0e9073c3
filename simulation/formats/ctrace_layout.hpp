// The fixed parts of a `.ctrace` file and its numbers, for its reader and its writer.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace cenote::formats::ctrace {

static_assert(std::endian::native == std::endian::little, "the file's numbers are little-endian");

constexpr std::array<char, 8> first_magic{'\xce', 'c', 't', 'r', 'a', 'c', 'e', '\n'};
constexpr std::array<char, 8> last_magic{'\n', 'e', 'c', 'a', 'r', 't', 'c', '\xce'};
constexpr std::uint32_t version = 1;
constexpr std::uint32_t second_version = 2;  ///< the same with flags of second_flags

constexpr std::uint64_t most_block_tokens = std::uint64_t{1} << 20;
constexpr std::uint64_t most_numbers = 0xffff'fffe;  ///< of requests, references and blocks each
constexpr std::size_t most_raw = std::size_t{16} << 20;
constexpr std::size_t usual_raw = std::size_t{256} << 10;

constexpr std::uint64_t flag_identities = 1;      ///< frames have the identities of their new blocks
constexpr std::uint64_t flag_anonymised = 2;      ///< …
constexpr std::uint64_t flag_full_blocks = 4;     ///< blocks that are not full were left out
constexpr std::uint64_t flag_names = 8;           ///< of instances, in frames without requests behind all others
constexpr std::uint64_t flag_engine_blocks = 16;  ///< each request ends with the leading blocks that its engine had
constexpr std::uint64_t second_flags = flag_names | flag_engine_blocks;
constexpr std::uint64_t all_flags = flag_identities | flag_anonymised | flag_full_blocks | second_flags;

struct file_header {
  std::array<char, 8> magic = first_magic;
  std::uint32_t version = ctrace::version;
  std::uint32_t size = 96;
  std::uint64_t block_tokens = 0;
  std::uint64_t requests = 0;
  std::uint64_t references = 0;
  std::uint64_t blocks = 0;
  std::uint64_t tokens = 0;
  std::uint64_t lines = 0;
  std::uint64_t left_out = 0;
  std::uint64_t flags = 0;
  std::uint64_t seed = 0;
  std::uint64_t checksum = 0;  ///< of all before it
};
static_assert(sizeof(file_header) == 96 && std::is_trivially_copyable_v<file_header>);

/// Before each frame, and again in the index.
struct frame_head {
  std::uint32_t packed = 0;    ///< bytes that follow
  std::uint32_t raw = 0;       ///< bytes when unpacked
  std::uint32_t requests = 0;  ///< 0: names of instances
  std::uint32_t blocks = 0;    ///< that come for the first time
  std::uint64_t references = 0;
  std::uint64_t checksum = 0;  ///< of the packed bytes
};
static_assert(sizeof(frame_head) == 32 && std::is_trivially_copyable_v<frame_head>);

/// The end of the file, behind the index.
struct file_trailer {
  std::uint64_t frames = 0;
  std::uint64_t checksum = 0;  ///< of the index
  std::array<char, 8> magic = last_magic;
};
static_assert(sizeof(file_trailer) == 24 && std::is_trivially_copyable_v<file_trailer>);

// The first byte of a request; its two upper bits are the access.
constexpr unsigned has_copy = 1;       ///< begins as an earlier request does
constexpr unsigned has_new = 2;        ///< then come new blocks
constexpr unsigned has_pieces = 4;     ///< then other pieces
constexpr unsigned has_time = 8;       ///< later than the one before it
constexpr unsigned has_instance = 16;  ///< another one than that of the one before it
constexpr unsigned has_session = 32;   ///< another one than that of what it copies, or of the one before it
constexpr unsigned access_shift = 6;

enum class chain_step : std::uint8_t { fresh, run, copy };
constexpr unsigned chain_step_bits = 2;

/// Numbers with a sign, small ones of both signs first.
constexpr std::uint64_t zigzag(std::int64_t number) noexcept {
  return (static_cast<std::uint64_t>(number) << 1) ^ static_cast<std::uint64_t>(number >> 63);
}
constexpr std::int64_t unzigzag(std::uint64_t code) noexcept {
  return static_cast<std::int64_t>((code >> 1) ^ (~(code & 1) + 1));
}

}  // namespace cenote::formats::ctrace
