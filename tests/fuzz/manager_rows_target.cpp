// Rows of a manager's journal, its snapshots, masks of requests, and the paths and addresses that it makes of names.
#include <algorithm>
#include <array>
#include <cstdlib>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/byte_io.hpp"
#include "services/manager/registry/config_snapshot.hpp"
#include "services/manager/service/key_question.hpp"
#include "services/manager/store/extent_row.hpp"
#include "services/manager/store/row_seal.hpp"
#include "tests/fuzz/target.hpp"
#include "transport/manager/file_uri.hpp"

namespace {

using namespace cenote::manager;
using cenote::byte_reader;
using cenote::fuzz::bytes_view;

constexpr extent_name name_of_rows{.instance = 1, .extent = 0x0000'0001'0000'0002};

void require(bool is_so) {
  if (!is_so) std::abort();
}

std::string text_of(bytes_view input) {
  return {reinterpret_cast<const char*>(input.data()), input.size()};
}

/// The row that `Write` makes of what was read is the one that was read, and none with another bit.
template <auto Read, auto Write>
void read_row(const std::string& name, const std::string& row, std::size_t bit) {
  const auto read = Read(name, row);
  if (!read) return;
  require(Write(name, *read) == row);
  std::string damaged = row;
  damaged[bit / 8 % row.size()] ^= static_cast<char>(1U << bit % 8);
  require(!Read(name, damaged));
  require(!Read(row_name(name.front(), {.instance = 2, .extent = name_of_rows.extent}), row));
}

/// A number of a bit, then a content, which is read with a seal and without. The version is the bit's, too.
template <auto Read, auto Write>
void read_content(char kind, bytes_view input) {
  byte_reader reader(input);
  const auto bit = reader.get<std::uint16_t>();
  const auto content = reader.get_run(reader.remaining());
  const std::string name = row_name(kind, name_of_rows);
  read_row<Read, Write>(name, text_of(content), bit);
  for (const std::uint16_t version : {0, 1, 2, 3}) read_row<Read, Write>(name, sealed(name, content, version), bit);
}

void read_grants(bytes_view input) {
  read_content<read_grant, grant_row>('e', input);
}

void read_masks(bytes_view input) {
  read_content<read_states, states_row>('m', input);
  read_content<read_finish, finish_row>('m', input);
}

storage_use is_unused(std::string_view) {
  return storage_use::unused;
}

/// A registry's own snapshot is read without harm, whatever its rows are.
void use(const manager_registry& registry) {
  static_cast<void>(load_snapshot(registry, make_snapshot(registry), is_unused));
}

/// Rows: the length of a name, the name, the length of a content, the content, so often as there is more.
void read_registry(bytes_view input) {
  byte_reader reader(input);
  std::map<std::string, std::string> contents;
  while (reader.remaining() != 0) {
    std::string name = text_of(reader.get_run(std::min<std::size_t>(reader.get<std::uint8_t>(), reader.remaining())));
    const std::size_t size = reader.get<std::uint16_t>();
    contents.insert_or_assign(std::move(name), text_of(reader.get_run(std::min(size, reader.remaining()))));
  }
  std::vector<stored_row> sound, raw;
  for (const auto& [name, content] : contents) {
    sound.push_back({.key = name, .value = pack_row(name, content)});
    raw.push_back({.key = name, .value = content});
    require(unpack_row(name, sound.back().value) == content);
    std::string damaged = sound.back().value;
    damaged[content.size() % damaged.size()] ^= 1;
    require(!unpack_row(name, damaged));
  }
  use(manager_registry::load(raw).value);
  use(manager_registry::load(sound, all_plugin_types()).value);
}

/// A snapshot that is taken makes rows that are the same registry, whose own snapshot changes nothing.
void read_snapshot(bytes_view input) {
  const manager_registry empty(all_plugin_types());
  const auto change = load_snapshot(empty, text_of(input), is_unused);
  if (!change) return;
  std::vector<stored_row> rows;
  for (const row_change& row : change->rows) {
    require(row.value.has_value());
    rows.push_back({.key = row.key, .value = *row.value});
  }
  const auto loaded = manager_registry::load(rows, all_plugin_types());
  require(loaded.damaged_rows == 0 && make_snapshot(loaded.value) == make_snapshot(change->next));
  const auto again = load_snapshot(change->next, make_snapshot(change->next), is_unused);
  require(again && again->rows.empty());
}

constexpr std::string_view plain_letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-%~";

/// One component of a path, and not that of the folder itself or the one over it.
bool is_component(std::string_view text) {
  return !text.empty() && text.size() <= longest_path_name &&
         text.find_first_not_of(plain_letters) == std::string_view::npos;
}

void check_file(const uri_writer& writer, const block_address& block) {
  const std::string path = writer.part(block.extent, block.position).path;
  const std::string folder = writer.folder(block.extent);
  require(path.starts_with(folder + "/") && std::ranges::count(folder, '/') == 1);
  require(is_component(folder.substr(0, folder.find('/'))));
  const std::string file = path.substr(folder.size() + 1);
  require(is_component(file.substr(0, file.find('.'))));
  const std::string number = file.substr(std::min(file.size(), file.find('.')));
  require(number.find_first_not_of("0123456789", 1) == std::string::npos && number != ".");
}

/// Addresses of two blocks, of a type that the first byte chooses.
void write_addresses(bytes_view input) {
  byte_reader reader(input);
  std::vector<storage_type> types;
  for (const storage_kind& kind : storage_kinds) {
    if (kind.form != storage_form::none) types.push_back(kind.type);
  }
  uri_place place{.type = types[reader.get<std::uint8_t>() % types.size()], .root = "/mnt/kv"};
  place.blocks_per_file = reader.get<std::uint32_t>();
  place.spec_bytes = reader.get<std::uint64_t>();
  block_address block{.extent = reader.get<std::uint64_t>(), .position = reader.get<std::uint32_t>()};
  block.key_low = reader.get<std::uint64_t>();
  block.key_high = reader.get<std::uint64_t>();
  block_address other = block;
  other.position = reader.get<std::uint32_t>();
  const std::string names = text_of(reader.get_run(reader.remaining()));
  const std::size_t third = names.size() / 3;
  std::string storage = names.substr(0, third);
  if (storage == "." || storage == "..") storage = "s";  // the registry refuses these
  const std::string instance = names.substr(third, third);
  const std::string spec = names.substr(2 * third);
  place.storage = storage;
  place.instance = instance;
  place.spec = spec;
  const uri_writer writer(place);
  std::string address, second;
  writer.append(block, address);
  writer.append(other, second);
  require(address.size() <= writer.longest() && second.size() <= writer.longest());
  require(std::ranges::all_of(address, [](char letter) { return letter > ' ' && letter < 0x7f; }));
  require(address.find_first_of("\"\\") == std::string::npos && address.find("/../") == std::string::npos);
  if (form_of(place.type) == storage_form::files) check_file(writer, block);
  if (writer.differ_in_digits(block.position, other.position)) {
    std::string patched = address;
    writer.write_digits(other.position, patched.data() + patched.size());
    require(patched == second);
  }
}

/// Of two names only equal ones have equal components; a zero byte parts them.
void write_names(bytes_view input) {
  const std::string text = text_of(input);
  const std::size_t middle = std::min(text.find('\0'), text.size());
  const std::string first = text.substr(0, middle), second = text.substr(std::min(middle + 1, text.size()));
  std::array<std::string, 2> components;
  append_path_name(first, components[0]);
  append_path_name(second, components[1]);
  require(std::ranges::all_of(components, is_component));
  require((components[0] == components[1]) == (first == second));
}

/// A number of keys, then a mask as a client sends it: it is refused, or it is a bool for each key, those that were
/// sent or true up to the offset.
void read_request_mask(bytes_view input) {
  byte_reader reader(input);
  const std::size_t count = reader.get<std::uint8_t>();
  proto::BlockMask sent;
  if (!sent.ParseFromString(text_of(reader.get_run(reader.remaining())))) return;
  const auto read = mask_of(mask_of(sent), count, "block_mask");
  if (!read) {
    require(read.error().code == answer_code::invalid_argument);
    require(sent.has_bool_masks() ? static_cast<std::size_t>(sent.bool_masks().values_size()) != count
                                  : sent.offset() < 0 || static_cast<std::size_t>(sent.offset()) > count);
    return;
  }
  require(read->size() == count);
  for (std::size_t i = 0; i < count; ++i) {
    const bool right = sent.has_bool_masks() ? sent.bool_masks().values(static_cast<int>(i))
                                             : i < static_cast<std::size_t>(sent.offset());
    require((*read)[i] == right);
  }
}

constexpr std::array<cenote::fuzz::codec, 7> codecs{read_grants,     read_masks,  read_registry,    read_snapshot,
                                                    write_addresses, write_names, read_request_mask};

void write_text_seed(std::size_t codec, std::string_view text) {
  cenote::fuzz::write_seed(codec, std::as_bytes(std::span(text)));
}

/// A row's content, behind the number of a bit.
void write_content_seed(std::size_t codec, std::string_view row) {
  write_text_seed(codec, std::string("\1\1") + std::string(row.substr(seal_bytes)));
}

constexpr std::string_view snapshot_text =
    R"({"format":1,"storages":[{"global_unique_name":"s1","nfs":{"root_path":"/mnt/kv/","key_count_per_file":8}},)"
    R"({"global_unique_name":"r","redis":{"url":"redis://h:1/0"}},{"global_unique_name":"m","mooncake":{}}],)"
    R"("groups":[{"name":"g","storage_candidates":["s1"],"max_instance_count":2,"version":1,)"
    R"("quota":{"capacity":1000,"quota_config":[{"storage_type":"ST_NFS","capacity":500}]},)"
    R"("cache_config":{"reclaim_strategy":{"trigger_strategy":{"used_percentage":0.8}},)"
    R"("meta_indexer_config":{"max_key_count":100}}}],"instances":[{"instance_group_name":"g","instance_id":"i",)"
    R"("block_size":64,"model_deployment":{"model_name":"m","dtype":"bf16"},)"
    R"("location_spec_infos":[{"name":"a","size":512},{"name":"b","size":256}],)"
    R"("location_spec_groups":[{"name":"a","spec_names":["a"]}]}],"accounts":[{"user_name":"u","role":"ROLE_ADMIN"}]})";

void write_registry_seeds() {
  write_text_seed(3, snapshot_text);
  const auto change = load_snapshot(manager_registry(all_plugin_types()), snapshot_text, is_unused);
  require(change.has_value() && change->rows.size() >= 5);
  std::string rows;
  for (const row_change& row : change->rows) {
    const auto content = unpack_row(row.key, *row.value).value();
    rows += static_cast<char>(row.key.size());
    rows += row.key;
    rows += static_cast<char>(content.size() & 0xffU);
    rows += static_cast<char>(content.size() >> 8U);
    rows += content;
  }
  write_text_seed(2, rows);
}

void write_seeds() {
  const std::string grant = row_name('e', name_of_rows), mask = row_name('m', name_of_rows);
  extent_grant sample{.name = name_of_rows, .nonce = 7, .keys = {{.low = 1}, {.low = 2}}, .specs = {3}};
  write_content_seed(0, grant_row(grant, sample));
  sample.keys.push_back({.low = 3, .high = 4});
  sample.specs = {1, 2, 3};
  sample.parents = {{.position = 0}, {.position = 2, .has_parent = true, .parent = {.low = 9}}};
  write_content_seed(0, grant_row(grant, sample));
  extent_states states{.wrote_at = 9, .finish_mark = 8, .states = {3, location_state::serving}};
  write_content_seed(1, states_row(mask, states));
  states.checksums = {.specs = 3, .values = {1, 2, 3, 4, 5, 6}};
  write_content_seed(1, states_row(mask, states));
  write_registry_seeds();
  for (char type = 0; type < 6; ++type) write_text_seed(4, std::string(1, type) + std::string(48, '\1') + "s../i.%/sp");
  using namespace std::string_view_literals;
  for (const auto names : {"a\0b"sv, "..\0."sv, "/\0%2F"sv, "\xff\0"sv}) write_text_seed(5, names);
  write_text_seed(5, std::string(300, '/') + '\0' + std::string(299, '/'));
  for (const auto bytes : {"\3"sv, "\3\x08\2"sv, "\3\x08\4"sv, "\2\x12\4\x0a\2\1\0"sv, "\2\x12\0"sv})
    write_text_seed(6, bytes);
}

}  // namespace

cenote::fuzz::target cenote::fuzz::make_target() {
  return {.codecs = ::codecs, .write_seeds = ::write_seeds};
}
