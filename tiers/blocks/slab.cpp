#include "tiers/blocks/slab.hpp"

#include <linux/magic.h>
#include <sys/vfs.h>

#include <algorithm>
#include <bit>

namespace cenote::blocks {

namespace {

constexpr std::uint64_t smallest_slab = std::uint64_t{4} << 20;
constexpr std::uint64_t largest_slab = std::uint64_t{1} << 30;
constexpr std::uint64_t huge_page = std::uint64_t{2} << 20;

memory::segment_header& trailer(const memory::segment& memory) noexcept {
  return *reinterpret_cast<memory::segment_header*>(memory.data() + memory.size() - memory::page_bytes);
}

/// Bytes of a slab's blocks, were they as small as can be.
std::uint64_t most_block_bytes(std::uint64_t capacity, std::uint64_t stride, std::uint64_t configured) noexcept {
  const std::uint64_t wanted = configured != 0 ? configured : std::bit_ceil(std::max<std::uint64_t>(capacity / 256, 1));
  // A tier smaller than a slab still holds one; the trailer page counts too.
  const std::uint64_t most = std::min(largest_slab, capacity > memory::page_bytes ? capacity - memory::page_bytes : 0);
  return std::min(std::max(wanted, configured != 0 ? stride : smallest_slab), most);
}

}  // namespace

void encode(byte_writer& out, const slab_description& slab, std::uint64_t segment_bytes) {
  out.put(slab.instance);
  out.put(slab.group);
  out.put(slab.index);
  out.put(slab.count);
  out.put(slab.stride);
  out.put(slab.first_record);
  out.put(slab.first_version);
  out.put(segment_bytes);
}

result<decoded_slab> decode_slab(std::span<const std::byte> meta) {
  byte_reader in(meta);
  decoded_slab found;
  found.slab.instance = in.get<std::uint32_t>();
  found.slab.group = in.get<std::uint32_t>();
  found.slab.index = in.get<std::uint32_t>();
  found.slab.count = in.get<std::uint32_t>();
  found.slab.stride = in.get<std::uint64_t>();
  found.slab.first_record = in.get<std::uint32_t>();
  found.slab.first_version = in.get<std::uint32_t>();
  found.segment_bytes = in.get<std::uint64_t>();
  if (!in.ok() || found.slab.count == 0 || found.segment_bytes < found.slab.segment_bytes()) {
    return fail(error_code::layout_mismatch, "the description of a slab makes no sense");
  }
  return found;
}

std::uint32_t blocks_per_slab(std::uint64_t capacity, std::uint64_t stride, std::uint64_t configured) noexcept {
  const std::uint64_t bytes = most_block_bytes(capacity, stride, configured);
  const std::uint64_t count = std::max<std::uint64_t>(1, bytes / stride);
  return static_cast<std::uint32_t>(std::min<std::uint64_t>(count, memory::block_ref::max_blocks_per_slab));
}

std::uint64_t usual_slab_bytes(std::uint64_t capacity, std::uint64_t configured) noexcept {
  const std::uint64_t blocks = most_block_bytes(capacity, memory::page_bytes, configured);
  return (blocks + memory::page_bytes - 1) / memory::page_bytes * memory::page_bytes + memory::page_bytes;
}

result<spare_memory> make_spare_memory(std::uint64_t bytes, bool huge, int node) {
  const std::string name = "cenote-slab-spare";
  const std::uint64_t whole = (bytes + huge_page - 1) / huge_page * huge_page;
  bool made_huge = huge;
  auto made = memory::segment::create(name, huge ? whole : bytes, huge, memory::sealing::later);
  if (!made && huge) {
    made = memory::segment::create(name, bytes, false, memory::sealing::later);
    made_huge = false;
  }
  if (!made) return std::unexpected(made.error());
  if (huge) made->advise_huge();
  if (node >= 0) made->bind_to_node(node);
  return spare_memory{std::move(*made), made_huge};
}

result<spare_memory> adopt_spare_memory(unique_fd fd) {
  struct statfs system {};
  if (::fstatfs(fd.get(), &system) != 0) return fail_errno("fstatfs");
  auto mapped = memory::segment::map_unsealed(std::move(fd));
  if (!mapped) return std::unexpected(mapped.error());
  return spare_memory{std::move(*mapped), system.f_type == HUGETLBFS_MAGIC};
}

result<memory::segment> make_slab_memory(const slab_description& slab, spare_memory memory) {
  const std::uint64_t bytes = slab.segment_bytes(memory.huge);
  if (auto settled = memory.memory.settle(bytes); !settled) return std::unexpected(settled.error());
  memory::write_header(trailer(memory.memory), memory::segment_kind::slab, bytes);
  return std::move(memory.memory);
}

result<memory::segment> make_slab_memory(const slab_description& slab, bool huge, int node) {
  const std::string name = "cenote-slab-" + std::to_string(slab.instance) + "-" + std::to_string(slab.index);
  auto made = huge ? memory::segment::create(name, slab.segment_bytes(true), true)
                   : memory::segment::create(name, slab.segment_bytes());
  if (!made && huge) made = memory::segment::create(name, slab.segment_bytes());  // quietly: doctor tells about them
  if (!made) return made;
  if (huge) made->advise_huge();
  if (node >= 0) made->bind_to_node(node);
  memory::write_header(trailer(*made), memory::segment_kind::slab, made->size());
  return made;
}

result<memory::segment> open_slab_memory(unique_fd fd, std::uint64_t segment_bytes) {
  auto mapped = memory::segment::map(std::move(fd), segment_bytes, memory::access::read_write);
  if (!mapped) return mapped;
  if (auto ok = memory::check_header(trailer(*mapped), memory::segment_kind::slab, segment_bytes); !ok) {
    return std::unexpected(ok.error());
  }
  return mapped;
}

}  // namespace cenote::blocks
