#include "services/manager/service/location_answer.hpp"

#include <algorithm>
#include <bit>
#include <utility>

#include "services/manager/service/call_answer.hpp"
#include "services/manager/store/number_text.hpp"
#include "services/manager/writes/block_site.hpp"
#include "transport/manager/answer_code.hpp"

namespace cenote::manager {

namespace {

namespace proto = ::kv_cache_manager::proto;

constexpr auto ok_code = static_cast<std::uint16_t>(answer_code::ok);

/// The parts of a key that is there, for a list of locations.
class part_list {
 public:
  explicit part_list(const located_keys& keys) : keys_(keys) {}

  [[nodiscard]] std::span<const location_part> parts_of(const found_key& key) {
    parts_.clear();
    const cache_key& name = keys_.keys[keys_.begin + static_cast<std::size_t>(&key - keys_.answer.keys.data())];
    for (std::uint32_t i = key.first_part; i < key.first_part + key.parts; ++i) {
      const found_part& part = keys_.answer.parts[i];
      if (texts_ == nullptr || part.storage != storage_) texts_ = &keys_.instance.texts(part.storage);
      storage_ = part.storage;
      parts_.push_back(
          {.texts = texts_,
           .block = address_of(part.extent, part.position, name),
           .specs = part.specs & keys_.specs,
           .checksums = part.checksums == no_checksums ? nullptr : &keys_.answer.checksums[part.checksums]});
    }
    return parts_;
  }

 private:
  const located_keys& keys_;
  std::vector<location_part> parts_;
  std::uint8_t storage_ = 0;  ///< of texts_
  const storage_texts* texts_ = nullptr;
};

std::string_view status_of(location_state state) noexcept {
  switch (state) {
    case location_state::writing: return "CLS_WRITING";
    case location_state::serving: return "CLS_SERVING";
    case location_state::deleting: return "CLS_DELETING";
    case location_state::none: break;
  }
  return "CLS_NOT_FOUND";
}

/// The order of states: what is served stands for the key, then what is being written.
int order_of(location_state state) noexcept {
  return state == location_state::serving ? 0 : state == location_state::writing ? 1 : 2;
}

template <class Place>
std::string id_of(const Place& place) {
  return hex_digits(place.extent) + "-" + std::to_string(place.position);
}

/// Specs of a block that lie in one place.
struct spec_place {
  std::uint8_t storage = 0;
  std::uint64_t specs = 0;
  block_address block{};
  const std::uint64_t* checksums = nullptr;  ///< null: none were given
};

void add_specs(const spec_place& place, const served_instance& instance, proto::CacheLocation& location) {
  const bool has_storage = place.storage < most_storages && instance.storages()[place.storage] != nullptr;
  for (std::uint64_t rest = place.specs; rest != 0; rest &= rest - 1) {
    const auto spec = static_cast<std::size_t>(std::countr_zero(rest));
    proto::LocationSpec& entry = *location.add_location_specs();
    entry.set_name(instance.terms().specs[spec].name);
    entry.set_checksum(checksum_at(place.checksums, spec));
    if (has_storage) instance.texts(place.storage)[spec].uri.append(place.block, *entry.mutable_uri());
  }
}

void fill_location(const served_instance& instance, const key_state& state, const cache_key& key,
                   proto::CacheLocation& location) {
  const auto& storage = state.storage < most_storages ? instance.storages()[state.storage] : nullptr;
  location.set_type(
      static_cast<proto::StorageType>(storage == nullptr ? storage_type::unspecified : storage->terms->type));
  add_specs({.storage = state.storage,
             .specs = state.specs,
             .block = address_of(state.extent, state.position, key),
             .checksums = state.checksums.empty() ? nullptr : state.checksums.data()},
            instance, location);
  location.set_spec_size(location.location_specs_size());
  location.set_id(id_of(state));
  location.set_status(std::string(status_of(state.state)));
  location.set_create_time(state.wrote_at);
}

void append_mask(const std::vector<bool>& masked, answer_form form, std::string& out) {
  const auto first_open = std::ranges::find(masked, false);
  const auto offset = static_cast<std::uint64_t>(first_open - masked.begin());
  const bool is_prefix = std::find(first_open, masked.end(), true) == masked.end();
  constexpr std::uint32_t mask_field = 3, offset_field = 1, bools_field = 2, values_field = 1;
  if (form == answer_form::json) {
    out += R"("block_mask":{)";
    if (is_prefix) {
      out += R"("offset":)" + std::to_string(offset) + "},";
      return;
    }
    out += R"("bool_masks":{"values":[)";
    for (std::size_t i = 0; i < masked.size(); ++i) {
      if (i > 0) out += ',';
      out += masked[i] ? "true" : "false";
    }
    out += "]}},";
    return;
  }
  std::string mask;
  if (is_prefix) {  // a oneof has its field also where that is 0
    append_varint(offset_field << 3U, mask);
    append_varint(offset, mask);
  } else {
    std::string values, bools(masked.size(), '\0');
    std::ranges::transform(masked, bools.begin(), [](bool each) { return each ? '\1' : '\0'; });
    append_field(values_field, bools, values);
    append_field(bools_field, values, mask);
  }
  append_field(mask_field, mask, out);
}

}  // namespace

void append_locations(const located_keys& keys, answer_form form, std::string& out) {
  constexpr std::uint32_t locations_field = 2;
  append_header(form, ok_code, {}, new_request_id(), out);
  location_list list(form, locations_field, "locations", keys.instance.terms(), out);
  list.reserve(keys.answer.keys.size());
  part_list parts(keys);
  std::size_t absent = keys.begin;  // that are not written yet
  for (const found_key& key : keys.answer.keys) {
    if (key.parts == 0) {
      ++absent;
      continue;
    }
    list.add_absent(keys.specs, std::exchange(absent, 0));
    list.add(parts.parts_of(key));
  }
  list.add_absent(keys.specs, absent + keys.count - keys.begin - keys.answer.keys.size());
  list.end();
  append_end(form, out);
}

void append_grant(const served_instance& instance, const start_grant& grant, answer_form form, std::string& out) {
  constexpr std::uint32_t session_field = 2, locations_field = 4;
  append_header(form, ok_code, {}, new_request_id(), out);
  if (form == answer_form::json) {
    out += R"("write_session_id":")" + grant.session + R"(",)";
  } else {
    append_field(session_field, grant.session, out);
  }
  append_mask(grant.masked, form, out);
  const storage_texts* const texts = grant.specs.empty() ? nullptr : &instance.texts(grant.storage);
  location_list list(form, locations_field, "locations", instance.terms(), out);
  list.reserve(grant.specs.size());
  for (std::size_t i = 0; i < grant.specs.size(); ++i) {
    const location_part part{.texts = texts,
                             .block = address_of(grant.extent, static_cast<std::uint32_t>(i), grant.keys[i]),
                             .specs = grant.specs[i]};
    list.add({&part, 1});
  }
  list.end();
  append_end(form, out);
}

void add_locations(const located_keys& keys, storage_type type,
                   proto::meta::GetCacheLocationsByBackendResponse& response) {
  for (std::size_t i = 0; i < keys.answer.keys.size(); ++i) {
    const found_key& found = keys.answer.keys[i];
    if (found.parts == 0) continue;
    auto& location = *response.mutable_key_locations(static_cast<int>(i))->add_locations();
    const auto parts = std::span(keys.answer.parts).subspan(found.first_part, found.parts);
    location.set_type(static_cast<proto::StorageType>(type));
    for (const found_part& part : parts) {
      add_specs({.storage = part.storage,
                 .specs = part.specs & keys.specs,
                 .block = address_of(part.extent, part.position, keys.keys[i]),
                 .checksums = part.checksums == no_checksums ? nullptr : &keys.answer.checksums[part.checksums]},
                keys.instance, location);
    }
    location.set_spec_size(location.location_specs_size());
    location.set_id(id_of(parts.front()));
    location.set_status(std::string(status_of(location_state::serving)));
    location.set_create_time(parts.front().wrote_at);
  }
}

proto::meta::GetCacheMetaResponse states_of_keys(const served_instance& instance, std::span<const cache_key> keys) {
  proto::meta::GetCacheMetaResponse response;
  std::vector<key_state> states;
  instance.index().read_states(keys, states);
  std::ranges::stable_sort(states, {},
                           [](const key_state& state) { return std::pair(state.key, order_of(state.state)); });
  auto state = states.begin();
  for (std::uint32_t key = 0; key < keys.size(); ++key) {
    proto::CacheLocation& location = *response.add_locations();
    auto& replicas = *response.add_replica_locations();
    std::string meta = R"({"id":")";
    const bool is_found = state != states.end() && state->key == key;
    if (is_found) meta += id_of(*state);
    meta += R"(","status":")";
    meta += status_of(is_found ? state->state : location_state::none);
    meta += R"("})";
    response.add_metas(std::move(meta));
    for (bool is_first = true; state != states.end() && state->key == key; ++state, is_first = false) {
      fill_location(instance, *state, keys[key], *replicas.add_locations());
      if (is_first) location = replicas.locations(0);
    }
  }
  return response;
}

}  // namespace cenote::manager
