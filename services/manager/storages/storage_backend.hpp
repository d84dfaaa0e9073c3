// The work of a manager on a storage itself: it deletes what is given up, and looks whether the storage works.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/error.hpp"

namespace cenote::manager {

enum class removal_scope : std::uint8_t {
  part,    ///< the bytes of one block; others lie beside them
  whole,   ///< the whole file or key, with nothing in it that anything refers to
  folder,  ///< a folder with all its files; of storages with files
};

/// Bytes to delete, or to look for.
struct removal_item {
  std::string place{};  ///< path below the storage's root, or key, or address
  std::uint64_t offset = 0;
  std::uint64_t bytes = 0;
  removal_scope scope = removal_scope::whole;
};

/// The room that a storage has at present.
struct storage_room {
  std::uint64_t free_bytes = 0;
  std::uint64_t total_bytes = 0;
};

/// A storage. One thread uses it, and calls may block for as long as the storage hangs.
class storage_backend {
 public:
  storage_backend() = default;
  storage_backend(const storage_backend&) = delete;
  storage_backend& operator=(const storage_backend&) = delete;
  virtual ~storage_backend() = default;

  /// Deletes; what is not there counts as deleted. To be repeated after an error.
  [[nodiscard]] virtual result<> remove(const removal_item& item) = 0;
  /// Items that remove_together() takes at once.
  [[nodiscard]] virtual std::size_t most_items() const noexcept { return 1; }
  /// Deletes 1 to most_items(); the outcomes in their order.
  [[nodiscard]] virtual std::vector<result<>> remove_together(std::span<const removal_item> items) {
    return {remove(items.front())};
  }
  /// Deletes files of a folder, a bounded number, and with the last one the folder. True: there are more. What is not
  /// there counts as deleted.
  [[nodiscard]] virtual result<bool> remove_some(const std::string& folder) {
    return fail(error_code::unsupported, "the storage has no folders: " + folder);
  }
  /// Whether the bytes of 1 to most_items() items are there, in their order; a folder is none. What was freed within a
  /// file counts as there where the file system shows no holes.
  [[nodiscard]] virtual std::vector<result<bool>> exist_together(std::span<const removal_item> items) {
    return std::vector<result<bool>>(items.size(),
                                     fail(error_code::unsupported, "the storage does not look for blocks"));
  }
  /// Writes something small, reads it back and deletes it. Errors: those of the storage.
  [[nodiscard]] virtual result<storage_room> probe() = 0;
  /// Ends a call that waits, where that can be done, and all later ones. Thread-safe.
  virtual void cancel() noexcept {}
};

}  // namespace cenote::manager
