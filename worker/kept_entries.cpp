#include "worker/kept_entries.hpp"

#include <array>
#include <cstdint>
#include <span>

#include "core/byte_io.hpp"

namespace cenote {

namespace {

std::uint64_t slab_id(const blocks::slab_description& slab) {
  return (std::uint64_t{slab.instance} << 32) | slab.index;
}

}  // namespace

kept_slabs slabs_kept_by(local::keeper_link& keeper) {
  return {
      .keep = [&keeper](const blocks::slab_description& slab, const unique_fd& memory,
                        std::uint64_t bytes) -> result<void> {
        byte_writer meta;
        blocks::encode(meta, slab, bytes);
        const std::array fds{memory.get()};
        return keeper.put(local::entry_kind::slab, slab_id(slab), meta.bytes(), fds);
      },
      .drop = [&keeper](
                  const blocks::slab_description& slab) { return keeper.drop(local::entry_kind::slab, slab_id(slab)); },
      .forget = [&keeper](std::uint32_t instance) { return keeper.drop(local::entry_kind::instance, instance); }};
}

instance_maker::registry instances_kept_by(local::keeper_link& keeper) {
  return {[&keeper](blocks::instance_number number, std::span<const std::byte> meta, std::span<const int> fds) {
            return keeper.put(local::entry_kind::instance, number, meta, fds);
          },
          [&keeper](blocks::instance_number number) { return keeper.drop(local::entry_kind::instance, number); }};
}

}  // namespace cenote
