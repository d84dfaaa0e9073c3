#include "memory/instance_memory.hpp"

#include <string>
#include <utility>

#include "memory/shared_file.hpp"

namespace cenote::memory {

namespace {

constexpr std::size_t name_characters = 200;  // the kernel takes 249 with what stands before them

}  // namespace

result<instance_memory> instance_memory::create(std::string_view name) {
  const std::string shown(name.substr(0, name_characters));
  auto index_file = shared_file::create("cenote-index-" + shown, index_segment_bytes);
  if (!index_file) return std::unexpected(index_file.error());
  auto index = index_writer::create(std::move(*index_file));
  if (!index) return std::unexpected(index.error());
  auto version_file = shared_file::create("cenote-versions-" + shown, version_table::segment_bytes);
  if (!version_file) return std::unexpected(version_file.error());
  auto versions = version_table::create(std::move(*version_file));
  if (!versions) return std::unexpected(versions.error());
  return instance_memory{std::move(*index), std::move(*versions)};
}

result<index_memory> open_index(unique_fd fd) {
  auto file = shared_file::adopt(std::move(fd), index_segment_bytes);
  if (!file) return std::unexpected(file.error());
  return index_memory::open(std::move(*file), access::read_only);
}

result<version_table> open_versions(unique_fd fd) {
  auto file = shared_file::adopt(std::move(fd), version_table::segment_bytes);
  if (!file) return std::unexpected(file.error());
  return version_table::open(std::move(*file), access::read_only);
}

}  // namespace cenote::memory
