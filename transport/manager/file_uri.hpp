// Addresses of blocks: where a block lies in a storage follows from the number of its extent, its position there and
// its spec.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "transport/manager/storage_type.hpp"

namespace cenote::manager {

/// Appends `name` percent-encoded but for [A-Za-z0-9_-], so that it is one component of a path that is neither empty
/// nor
/// "." nor ".."; where that takes more than a file's name may have, its begin, `~` and 32 hexadecimal digits of a hash.
void append_path_name(std::string_view name, std::string& out);

/// Appends `name` as the authority of a URI: percent-encoded but for [A-Za-z0-9._~-].
void append_authority(std::string_view name, std::string& out);

/// The bytes that append_path_name() appends at most.
inline constexpr std::size_t longest_path_name = 224;

/// All that the blocks of a spec of an instance have in common in a storage. Texts are copied.
struct uri_place {
  storage_type type = storage_type::nfs;
  std::string_view storage = {};
  std::string_view root = {};         ///< of a storage with files: absolute, normal, without a slash at its end
  std::uint32_t blocks_per_file = 1;  ///< 0 is as 1
  std::string_view instance = {};
  std::string_view spec = {};
  std::uint64_t spec_bytes = 0;
};

/// The part of a file that is a block.
struct file_range {
  std::string path = {};  ///< below the storage's root: "instance/0000000100000002/spec.3"
  std::uint64_t offset = 0;
  std::uint64_t bytes = 0;
};

/// A block of an extent.
struct block_address {
  std::uint64_t extent = 0;
  std::uint32_t position = 0;
  std::uint64_t key_low = 0, key_high = 0;  ///< of the block
};

/// Writes the addresses of one spec of one instance in one storage:
///
///     file://<storage><root>/<instance>/<extent, 16 hex digits>/<spec>[.n]?blkid=j&size=s     NFS; 3fs:// likewise
///     redis://<storage>/<instance>/<extent, 16 hex digits>/<spec>/<j>?size=s                  Redis
///     mooncake://<storage>/<instance>/<spec>/<key>-<extent, 16 hex digits>?size=s             plug-ins
///
/// The key is 16 hexadecimal digits, or 32 if it has more than 64 bits that count, the higher ones first. An extent has
/// a key once.
///
/// A file is of one extent and one spec and has `blocks_per_file` blocks: n = position / blocks_per_file, and j is the
/// rest. The first file (n = 0) has no `.n`; no name of a spec has a point in it once encoded, so that no two files
/// have one name. The path of a URI is the path of the file as it stands, percent signs included. No byte of a URI
/// needs an escape in JSON. Immutable, so thread-safe; writing allocates nothing.
class uri_writer {
 public:
  explicit uri_writer(const uri_place& place);

  /// Whether addresses of that type are written here.
  [[nodiscard]] static constexpr bool serves(storage_type type) noexcept { return form_of(type) != storage_form::none; }

  /// Bytes of the longest address.
  [[nodiscard]] std::size_t longest() const noexcept;
  /// Writes the address of `block` to `out`, which has room for longest() bytes, and returns its end.
  char* write(const block_address& block, char* out) const noexcept;
  void append(const block_address& block, std::string& out) const;
  /// Whether the addresses of two blocks of an extent differ in nothing but the digits of one number; of plug-ins they
  /// differ in more.
  [[nodiscard]] bool differ_in_digits(std::uint32_t first, std::uint32_t second) const noexcept;
  /// Writes those digits for the block at `position` over those of another one, whose address ends at `end`.
  void write_digits(std::uint32_t position, char* end) const noexcept;

  /// The block's place in the file system, of a storage with files.
  [[nodiscard]] file_range part(std::uint64_t extent, std::uint32_t position) const;
  /// The folder of an extent below the root: "instance/0000000100000002".
  [[nodiscard]] std::string folder(std::uint64_t extent) const;
  /// The block's key in a Redis storage: "instance/0000000100000002/spec/3".
  [[nodiscard]] std::string key(std::uint64_t extent, std::uint32_t position) const;

 private:
  char* write_place(std::uint64_t extent, std::uint32_t position, char* out) const noexcept;
  [[nodiscard]] bool has_number_of_file() const noexcept {
    return form_ == storage_form::files && blocks_per_file_ == 1;
  }

  storage_form form_;
  std::string prefix_;    // up to the instance, the slash behind it included; of a plug-in up to the spec
  std::string spec_;      // with slashes: "/spec", and "/spec/" for Redis
  std::string tail_;      // "&size=s" or "?size=s"
  std::string instance_;  // "instance/"
  std::uint64_t spec_bytes_;
  std::uint32_t blocks_per_file_;
};

}  // namespace cenote::manager
