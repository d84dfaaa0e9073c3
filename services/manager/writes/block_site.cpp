#include "services/manager/writes/block_site.hpp"

#include <bit>
#include <utility>

#include "transport/manager/file_uri.hpp"

namespace cenote::manager {

uri_writer writer_of(const storage_terms& storage, const instance_terms& instance, const spec_terms& spec) {
  return uri_writer({.type = storage.type,
                     .storage = storage.name,
                     .root = storage.root,
                     .blocks_per_file = storage.blocks_per_file,
                     .instance = instance.id,
                     .spec = spec.name,
                     .spec_bytes = spec.bytes});
}

void add_removal_items(const block_site& place, removal_scope scope, std::vector<removal_item>& items) {
  std::uint64_t specs = 0;
  place.instance.index->visit_locations(place.extent.records[place.position], [&](const location& each) {
    if (each.extent == place.extent.table) specs = place.instance.index->sets().mask(each.set);
  });
  const cache_key key = place.instance.index->key_of(place.extent.records[place.position]);
  const storage_form form = form_of(place.storage.type);
  for (; specs != 0; specs &= specs - 1) {
    const uri_writer writer = writer_of(place.storage, *place.instance.terms,
                                        place.instance.terms->specs[static_cast<std::size_t>(std::countr_zero(specs))]);
    if (form == storage_form::files) {
      file_range part = writer.part(place.extent.name.extent, place.position);
      items.push_back({.place = std::move(part.path), .offset = part.offset, .bytes = part.bytes, .scope = scope});
    } else if (form == storage_form::plugin) {
      removal_item& item = items.emplace_back();
      writer.append(address_of(place.extent.name.extent, place.position, key), item.place);
    } else {
      items.push_back({.place = writer.key(place.extent.name.extent, place.position)});
    }
  }
}

}  // namespace cenote::manager
