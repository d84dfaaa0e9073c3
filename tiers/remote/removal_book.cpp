#include "tiers/remote/removal_book.hpp"

#include <algorithm>
#include <ranges>
#include <tuple>
#include <utility>

#include "core/block_key_io.hpp"
#include "core/byte_io.hpp"
#include "core/checksum.hpp"
#include "core/instance_spec.hpp"
#include "core/whole_file.hpp"

namespace cenote::remote {

namespace {

constexpr std::uint64_t removals_magic = 0x6b6f6f626c766d72;  // "rmvlbook"
constexpr std::uint32_t removals_version = 4;
constexpr std::uint32_t removals_version_of_no_instances = 3;  // and before
constexpr std::uint32_t removals_version_of_plain_names = 2;   // without what is known of a name
constexpr std::uint8_t settled_flag = 1;
constexpr std::size_t removals_sum_bytes = sizeof(std::uint64_t);
constexpr std::size_t most_removals_bytes = std::size_t{64} << 20U;
constexpr std::size_t longest_name = 1024;
constexpr std::size_t longest_spec = 65536;

void encode(byte_writer& writer, const std::set<std::string>& nodes) {
  const auto count = static_cast<std::uint32_t>(std::min(nodes.size(), removal_book::most_nodes));
  writer.put(count);
  for (const std::string& each : nodes | std::views::take(count)) writer.put_text(each);
}

/// The longest away first, those that are here last: so the next worker knows their order.
void encode(byte_writer& writer, const std::map<std::string, removal_book::known_node>& nodes) {
  std::vector<std::tuple<std::uint64_t, std::string_view, bool>> order;
  order.reserve(nodes.size());
  for (const auto& [name, node] : nodes)
    order.emplace_back(node.departure == 0 ? ~std::uint64_t{0} : node.departure, name, node.is_settled);
  std::ranges::sort(order);
  const auto count = std::min(order.size(), removal_book::most_nodes);
  writer.put(static_cast<std::uint32_t>(count));
  for (const auto& [departure, name, is_settled] : order | std::views::drop(order.size() - count)) {
    writer.put_text(name);
    writer.put(is_settled ? settled_flag : std::uint8_t{0});
  }
}

void encode(byte_writer& writer, const removal_book::open_removal& removal) {
  writer.put_raw(removal.identity.bytes);
  writer.put(removal.cleared);
  put_block_keys(writer, removal.keys);
  writer.put_bytes(removal.spec);
  encode(writer, removal.nodes);
}

void encode(byte_writer& writer, const std::map<instance_identity, removal_book::known_instance>& instances) {
  std::vector<std::pair<std::uint64_t, const instance_identity*>> order;
  order.reserve(instances.size());
  for (const auto& [identity, each] : instances) order.emplace_back(each.number, &identity);
  std::ranges::sort(order);
  writer.put(static_cast<std::uint32_t>(order.size()));
  for (const auto& [number, identity] : order) {
    writer.put_raw(identity->bytes);
    writer.put_bytes(instances.at(*identity).spec);
  }
}

/// Empty: it is not known.
std::string group_of(std::span<const std::byte> encoded) {
  byte_reader reader(encoded);
  const auto spec = decode_instance_spec(reader);
  return spec ? spec->paying_group() : std::string();
}

void encode(byte_writer& writer, const cluster::write_off_record& departures) {
  writer.put(static_cast<std::uint32_t>(departures.nodes.size()));
  for (const auto& [name, number] : departures.nodes) {
    writer.put_text(name);
    writer.put(number);
  }
  writer.put(static_cast<std::uint32_t>(departures.closed.size()));
  for (const std::uint64_t number : departures.closed) writer.put(number);
  writer.put(static_cast<std::uint8_t>(departures.is_incomplete));
}

}  // namespace

result<removal_book> removal_book::open(std::filesystem::path file, std::uint64_t now) {
  removal_book book;
  book.file_ = std::move(file);
  const auto bytes = read_whole(book.file_, most_removals_bytes);
  if (!bytes) return std::unexpected(bytes.error().in("removals that other nodes have not confirmed"));
  if (*bytes && !book.decode(**bytes)) {
    book.orders_.clear();
    book.nodes_.clear();
    book.instances_.clear();
    book.keys_ = book.spec_bytes_ = 0;
    book.clears_ = {.floor = now};
    book.departures_ = {};
    book.was_damaged_ = true;
  }
  if (auto written = book.write(book.clears_, book.departures_); !written)
    return std::unexpected(written.error().in("removals that other nodes have not confirmed"));
  return book;
}

std::uint64_t removal_book::add(open_removal added, const clear_maker& next_clear) {
  std::erase_if(orders_, [&](const auto& row) {
    const open_removal& earlier = row.second;
    // One that began later removes what was stored since: its answer may only have come before.
    const bool is_covered = earlier.identity == added.identity && earlier.sequence <= added.sequence &&
                            (added.cleared != 0 || (earlier.cleared == 0 && earlier.keys == added.keys));
    if (!is_covered) return false;
    added.nodes.insert(earlier.nodes.begin(), earlier.nodes.end());
    note_replaced(earlier);
    return true;
  });
  keys_ += added.keys.size();
  added.group = group_of(added.spec);
  const std::uint64_t number = next_++;
  orders_.emplace(number, std::move(added));
  make_room(next_clear);
  is_changed_ = true;
  return number;
}

/// Removing more is always right, forgetting a removal is not: it is the last resort, and costs the instance group that
/// fills the book.
void removal_book::make_room(const clear_maker& next_clear) {
  while (orders_.size() > most_orders || (keys_ > most_keys && orders_.size() > 1)) {
    const bool by_orders = orders_.size() > most_orders;
    const auto [identity, size] = largest_instance(by_orders);
    if (next_clear && (!by_orders || size > 1)) {
      replace_with_clear(identity, next_clear);
      continue;
    }
    const bool is_alone = by_orders && size == 1;
    const auto oldest = is_alone
                            ? orders_.find(oldest_of_largest_group())
                            : std::ranges::find(orders_, identity, [](const auto& row) { return row.second.identity; });
    note_replaced(std::move(oldest->second));
    orders_.erase(oldest);
    ++dropped_;
  }
}

/// That has most orders, or keys, and how many: of several the one whose first order is the oldest.
std::pair<instance_identity, std::size_t> removal_book::largest_instance(bool by_orders) const {
  std::map<instance_identity, std::size_t> sizes;
  for (const auto& [number, each] : orders_) sizes[each.identity] += by_orders ? 1 : each.keys.size();
  const auto largest =
      std::ranges::max_element(orders_, {}, [&](const auto& row) { return sizes.at(row.second.identity); });
  return {largest->second.identity, sizes.at(largest->second.identity)};
}

std::uint64_t removal_book::oldest_of_largest_group() const {
  std::map<std::string_view, std::size_t> sizes;
  for (const auto& [number, each] : orders_) ++sizes[each.group];
  return std::ranges::max_element(orders_, {}, [&](const auto& row) { return sizes.at(row.second.group); })->first;
}

/// Its nodes are those of all of the orders.
void removal_book::replace_with_clear(const instance_identity& identity, const clear_maker& next_clear) {
  ++forced_clears_;
  open_removal clear{.identity = identity, .cleared = next_clear(identity)};
  std::erase_if(orders_, [&](const auto& row) {
    const open_removal& order = row.second;
    if (order.identity != identity) return false;
    clear.nodes.insert(order.nodes.begin(), order.nodes.end());
    if (clear.spec.empty()) clear.spec = order.spec;
    clear.sequence = std::max(clear.sequence, order.sequence);
    clear.group = order.group;
    note_replaced(order);
    return true;
  });
  if (clear.cleared != 0) orders_.emplace(next_++, std::move(clear));
}

/// An order that goes.
void removal_book::note_replaced(open_removal order) {
  keys_ -= order.keys.size();
  replaced_.push_back(std::move(order));
}

void removal_book::keep(std::uint64_t number, std::set<std::string> nodes) {
  const auto found = orders_.find(number);
  if (found == orders_.end() || found->second.nodes == nodes) return;
  is_changed_ = true;
  if (!nodes.empty()) {
    found->second.nodes = std::move(nodes);
    return;
  }
  keys_ -= found->second.keys.size();
  orders_.erase(found);
}

bool removal_book::is_settled(const std::string& name) const noexcept {
  const auto found = nodes_.find(name);
  return found != nodes_.end() && found->second.is_settled;
}

void removal_book::note_here(const std::string& name) {
  const auto [found, is_new] = nodes_.try_emplace(name);
  if (!is_new && found->second.departure == 0) return;
  found->second = {};
  is_changed_ = true;
}

void removal_book::note_away(const std::string& name) {
  const auto [found, is_new] = nodes_.try_emplace(name);
  if (found->second.departure != 0) return;
  found->second.departure = ++departures_noted_;
  is_changed_ = true;
}

void removal_book::note_settled(const std::string& name) {
  const auto found = nodes_.find(name);
  if (found == nodes_.end() || found->second.is_settled) return;
  found->second.is_settled = true;
  is_changed_ = true;
}

void removal_book::forget_node(const std::string& name) {
  if (nodes_.erase(name) != 0) is_changed_ = true;
}

std::string removal_book::excess_node() const {
  if (nodes_.size() <= most_nodes) return {};
  const auto rank = [](const auto& row) {
    const known_node& node = row.second;
    return std::tuple(node.departure == 0, !node.is_settled, node.departure);
  };
  const auto first = std::ranges::min_element(nodes_, {}, rank);
  return first->second.departure == 0 ? std::string() : first->first;
}

bool removal_book::note_instance(const instance_identity& identity, std::vector<std::byte> spec) {
  if (instances_.contains(identity) || spec.empty() || spec.size() > longest_spec) return false;
  spec_bytes_ += spec.size();
  std::string group = group_of(spec);
  instances_.emplace(identity, known_instance{std::move(spec), std::move(group), next_instance_++});
  while (spec_bytes_ > most_spec_bytes) drop_oldest_instance();
  is_changed_ = true;
  return true;
}

void removal_book::drop_oldest_instance() {
  std::map<std::string_view, std::size_t> sizes;
  for (const auto& [identity, each] : instances_) sizes[each.group] += each.spec.size();
  const auto largest = std::ranges::max_element(sizes, {}, [](const auto& each) { return each.second; })->first;
  const auto oldest = std::ranges::min_element(
      instances_, {}, [&](const auto& row) { return std::pair(row.second.group != largest, row.second.number); });
  spec_bytes_ -= oldest->second.spec.size();
  instances_.erase(oldest);
}

const removal_book::open_removal* removal_book::find(std::uint64_t number) const noexcept {
  const auto found = orders_.find(number);
  return found == orders_.end() ? nullptr : &found->second;
}

unconfirmed_removals removal_book::count(const instance_identity& identity, std::set<std::string> nodes) const {
  unconfirmed_removals counted;
  for (const auto& [number, each] : orders_) {
    if (each.identity != identity) continue;
    ++counted.removals;
    nodes.insert(each.nodes.begin(), each.nodes.end());
  }
  counted.places = nodes.size();
  return counted;
}

bool removal_book::decode_order(byte_reader& reader) {
  open_removal what;
  what.identity.bytes = reader.get_array<sizeof(instance_identity)>();
  what.cleared = reader.get<std::uint64_t>();
  bool is_good = true;
  what.keys = get_block_keys(reader, ~std::size_t{0}, is_good);  // of one order as many as the file holds
  if (!is_good) return false;
  const auto spec = reader.get_bytes();
  if (spec.size() > longest_spec || !decode_nodes(reader, what.nodes)) return false;
  what.spec.assign(spec.begin(), spec.end());
  what.group = group_of(what.spec);
  keys_ += what.keys.size();
  orders_.emplace(next_++, std::move(what));
  return reader.ok();
}

bool removal_book::decode_departures(byte_reader& reader, std::uint32_t version) {
  const auto nodes = reader.get<std::uint32_t>();
  if (nodes > cluster::write_offs::most_write_offs) return false;
  for (std::uint32_t i = 0; i < nodes && reader.ok(); ++i) {
    std::string name = reader.get_text();
    if (name.size() > longest_name) return false;
    departures_.nodes[std::move(name)] = reader.get<std::uint64_t>();
  }
  const auto numbers = reader.get<std::uint32_t>();
  if (numbers > cluster::write_offs::most_numbers) return false;
  for (std::uint32_t i = 0; i < numbers; ++i) departures_.closed.push_back(reader.get<std::uint64_t>());
  departures_.is_incomplete = version != removals_version_of_plain_names && reader.get<std::uint8_t>() != 0;
  return reader.ok();
}

bool removal_book::decode_known(byte_reader& reader, std::uint32_t version) {
  const auto count = reader.get<std::uint32_t>();
  if (count > most_nodes) return false;
  for (std::uint32_t i = 0; i < count && reader.ok(); ++i) {
    std::string name = reader.get_text();
    if (name.size() > longest_name) return false;
    const bool is_settled = version != removals_version_of_plain_names && reader.get<std::uint8_t>() == settled_flag;
    nodes_[std::move(name)] = {.departure = ++departures_noted_, .is_settled = is_settled};
  }
  return reader.ok();
}

/// In the order in which they came.
bool removal_book::decode_instances(byte_reader& reader, std::uint32_t version) {
  if (version <= removals_version_of_no_instances) return true;
  const auto count = reader.get<std::uint32_t>();
  for (std::uint32_t i = 0; i < count && reader.ok(); ++i) {
    const instance_identity identity{reader.get_array<sizeof(instance_identity)>()};
    const auto spec = reader.get_bytes();
    note_instance(identity, {spec.begin(), spec.end()});
  }
  is_changed_ = false;
  return reader.ok();
}

bool removal_book::decode_nodes(byte_reader& reader, std::set<std::string>& names) {
  const auto count = reader.get<std::uint32_t>();
  if (count > most_nodes) return false;
  for (std::uint32_t i = 0; i < count && reader.ok(); ++i) {
    std::string name = reader.get_text();
    if (name.size() > longest_name) return false;
    names.insert(std::move(name));
  }
  return reader.ok();
}

bool removal_book::decode(std::string_view bytes) {
  if (bytes.size() < removals_sum_bytes || bytes.size() > most_removals_bytes) return false;
  const auto body = std::as_bytes(std::span(bytes)).first(bytes.size() - removals_sum_bytes);
  byte_reader sum(std::as_bytes(std::span(bytes)).last(removals_sum_bytes));
  if (sum.get<std::uint64_t>() != checksum_of(body)) return false;

  byte_reader reader(body);
  if (reader.get<std::uint64_t>() != removals_magic) return false;
  const auto version = reader.get<std::uint32_t>();
  if (version < removals_version_of_plain_names || version > removals_version) return false;
  clears_.floor = reader.get<std::uint64_t>();
  const auto clears = reader.get<std::uint32_t>();
  if (clears > cluster::pool::most_cleared) return false;
  for (std::uint32_t i = 0; i < clears; ++i) {
    const instance_identity identity{reader.get_array<sizeof(instance_identity)>()};
    auto& numbers = clears_.numbers[identity];
    numbers.heard = reader.get<std::uint64_t>();
    numbers.carried_out = reader.get<std::uint64_t>();
  }
  const auto orders = reader.get<std::uint32_t>();
  if (orders > most_orders) return false;
  for (std::uint32_t i = 0; i < orders; ++i) {
    if (!decode_order(reader)) return false;
  }
  if (!decode_known(reader, version) || !decode_departures(reader, version) || !decode_instances(reader, version))
    return false;
  return reader.ok() && reader.remaining() == 0;
}

result<void> removal_book::write(cluster::clear_record clears, cluster::write_off_record departures) {
  clears_ = std::move(clears);
  departures_ = std::move(departures);
  if (file_.empty()) {
    is_changed_ = false;
    return {};
  }
  byte_writer writer;
  writer.put(removals_magic);
  writer.put(removals_version);
  writer.put(clears_.floor);
  writer.put(static_cast<std::uint32_t>(clears_.numbers.size()));
  for (const auto& [identity, numbers] : clears_.numbers) {
    writer.put_raw(identity.bytes);
    writer.put(numbers.heard);
    writer.put(numbers.carried_out);
  }
  writer.put(static_cast<std::uint32_t>(orders_.size()));
  for (const auto& [number, each] : orders_) encode(writer, each);
  encode(writer, nodes_);
  encode(writer, departures_);
  encode(writer, instances_);
  writer.put(checksum_of(writer.bytes()));
  auto written = replace_whole(file_, writer.bytes());
  if (written) is_changed_ = false;
  return written;
}

}  // namespace cenote::remote
