// The file of epochs: read whole, written whole.
#include "tiers/remote/epoch_book.hpp"

#include <fcntl.h>
#include <sys/file.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <functional>
#include <span>
#include <vector>

#include "core/byte_io.hpp"
#include "core/checksum.hpp"
#include "core/file_lock.hpp"
#include "core/whole_file.hpp"

namespace cenote::remote {

namespace {

constexpr std::uint64_t book_magic = 0x6b6f6f6268636f65;  // "eochbook"
constexpr std::uint32_t book_version = 4;
constexpr std::uint8_t pending_flag = 1;
constexpr std::uint8_t clear_above_flag = 2;
constexpr std::uint8_t confirmed_flag = 4;
constexpr epoch farthest = epoch{1} << 60U;  // 36 years of nanoseconds
constexpr epoch first_clear = epoch{1} << 52U;
constexpr unsigned clear_bits = 22;  // of an epoch's low part: two clears within 4 ms may look like one
constexpr std::size_t least_entry_bytes = 8 + sizeof(instance_identity) + 8 + 8 + 1 + 1;
constexpr std::size_t most_entry_bytes = least_entry_bytes + epoch_record::most_clears * sizeof(epoch);
constexpr std::size_t book_header_bytes = 8 + 4 + 8 + 4;
constexpr std::size_t most_book_bytes = book_header_bytes + epoch_book::most_entries * most_entry_bytes + 8;

result<unique_fd> lock_of(const std::filesystem::path& file, std::chrono::milliseconds patience) {
  auto beside = file;
  beside += ".lock";
  unique_fd opened(::open(beside.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  if (!opened) return fail_errno("open", beside.native());
  const auto locked = lock_file(opened.get(), LOCK_EX, beside.native(), patience);
  if (!locked) return std::unexpected(locked.error());
  if (!*locked) {
    return fail(error_code::invalid_config,
                file.native() +
                    " is in use by another node, or by another backend that names the same server, database and "
                    "prefix: each node needs a `remote.state_dir` of its own");
  }
  return opened;
}

/// Whether they are epochs of clears, latest first.
bool are_clears(std::span<const epoch> epochs) noexcept {
  return std::ranges::all_of(epochs, [](epoch each) { return each >= first_clear && each < epoch_limit; }) &&
         std::ranges::adjacent_find(epochs, std::ranges::less_equal()) == epochs.end();
}

}  // namespace

std::string epoch_text(epoch number) {
  constexpr std::string_view digits = "0123456789abcdef";
  std::string text(16, '0');
  for (std::size_t i = 16; i-- > 0; number >>= 4U) text[i] = digits[number & 0xfU];
  return text;
}

epoch epoch_in(std::string_view text) noexcept {
  epoch number = 0;
  if (text.size() != 16) return 0;
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), number, 16);
  if (code != std::errc() || end != text.data() + text.size() || number >= epoch_limit) return 0;
  return number;
}

bool differ_by_clear(epoch one, epoch other) noexcept {
  const auto clear_of = [](epoch number) { return number < first_clear ? 0 : number >> clear_bits; };
  return clear_of(one) != clear_of(other);
}

bool epoch_record::covers(epoch other) const noexcept {
  if (other < first_clear || !differ_by_clear(number, other)) return true;
  if (clears.size() == most_clears && other < clears.back()) return true;
  return std::ranges::any_of(clears, [&](epoch each) { return !differ_by_clear(each, other); });
}

void epoch_record::add(const epoch_record& other) {
  insert(other.number);
  for (const epoch each : other.clears) insert(each);
}

void epoch_record::insert(epoch clear) {
  if (covers(clear)) return;
  clears.insert(std::ranges::lower_bound(clears, clear, std::greater()), clear);
  if (clears.size() > most_clears) clears.pop_back();
}

std::string record_text(const epoch_record& record) {
  std::string text = epoch_text(record.number);
  for (const epoch each : record.clears) text += epoch_text(each);
  return text;
}

epoch_record record_in(std::string_view text, epoch now) {
  constexpr std::size_t digits = 16;
  if (text.size() % digits != 0 || text.size() > digits * (1 + epoch_record::most_clears)) return {};
  epoch_record record{.number = epoch_in(text.substr(0, digits))};
  for (std::size_t at = digits; at < text.size(); at += digits) {
    record.clears.push_back(epoch_in(text.substr(at, digits)));
  }
  const auto& clears = record.clears;
  const bool has_order =
      clears.empty() || (clears.front() < record.number && differ_by_clear(clears.front(), record.number));
  return has_order && are_clears(clears) && record.number < now + farthest ? record : epoch_record{};
}

namespace {

constexpr epoch low_part = (epoch{1} << clear_bits) - 1;

constexpr epoch spread = 0x9e3779b97f4a7c15;

/// Where the floor is ahead of the clock two nodes count up from the same one: by steps that differ as a rule.
epoch epoch_of_clear(epoch floor, epoch now) noexcept {
  constexpr epoch most_steps = 1024;
  const epoch step = 1 + ((now * spread) >> 32U) % most_steps;
  const epoch clear = now >> clear_bits > floor >> clear_bits ? now >> clear_bits : (floor >> clear_bits) + step;
  return clear << clear_bits | ((now & low_part) >> 1U);
}

/// Another one without a clear, a small part of what is left until the next clear's number. What two nodes make of the
/// same one differs as a rule.
epoch epoch_after(epoch floor, epoch now) noexcept {
  constexpr unsigned part_bits = 7;
  if (floor < first_clear) return std::max(floor + 1, now / 1000);
  const epoch left = low_part - (floor & low_part);
  return floor + 1 + (((left >> part_bits) * ((now * spread) >> 32U)) >> 32U);
}

}  // namespace

result<epoch_book> epoch_book::open(std::filesystem::path file, epoch now, std::chrono::milliseconds patience) {
  auto lock = lock_of(file, patience);
  if (!lock) return std::unexpected(lock.error().in("the epochs of a remote tier"));
  auto bytes = read_whole(file, most_book_bytes);
  if (!bytes) return std::unexpected(bytes.error().in("the epochs of a remote tier"));
  epoch_book book(std::move(file), std::move(*lock));
  if (*bytes && !book.decode(**bytes)) {
    book.entries_.clear();
    book.pending_ = 0;
    book.floor_ = now;
    book.was_damaged_ = true;
  }
  if (auto written = book.write(); !written) {
    return std::unexpected(written.error().in("the epochs of a remote tier"));
  }
  return book;
}

bool epoch_book::decode(std::string_view bytes) {
  constexpr std::size_t sum_bytes = sizeof(std::uint64_t);
  if (bytes.size() < book_header_bytes + sum_bytes || bytes.size() > most_book_bytes) return false;
  const auto body = std::as_bytes(std::span(bytes)).first(bytes.size() - sum_bytes);
  byte_reader sum(std::as_bytes(std::span(bytes)).last(sum_bytes));
  if (sum.get<std::uint64_t>() != checksum_of(body)) return false;

  byte_reader reader(body);
  if (reader.get<std::uint64_t>() != book_magic) return false;
  if (reader.get<std::uint32_t>() != book_version) return false;
  floor_ = reader.get<std::uint64_t>();
  const auto count = reader.get<std::uint32_t>();
  if (count > most_entries || reader.remaining() < count * least_entry_bytes || floor_ >= epoch_limit) return false;
  for (std::uint32_t i = 0; i < count; ++i) {
    const auto server = reader.get<std::uint64_t>();
    const instance_identity identity{reader.get_array<sizeof(instance_identity)>()};
    const auto number = reader.get<std::uint64_t>();
    const auto repeat = reader.get<std::uint64_t>();
    const auto flags = reader.get<std::uint8_t>();
    const auto clears = reader.get<std::uint8_t>();
    if (number >= epoch_limit || repeat >= epoch_limit ||
        (flags & ~(pending_flag | clear_above_flag | confirmed_flag)) != 0)
      return false;
    if (clears > epoch_record::most_clears || reader.remaining() < clears * sizeof(epoch)) return false;
    entry& read = entries_[{server, identity}];
    read.record.number = number;
    set_pending(read, (flags & pending_flag) != 0, repeat);
    read.is_confirmed = (flags & confirmed_flag) != 0;
    read.is_uncleared_above = (flags & clear_above_flag) != 0;
    for (std::uint8_t clear = 0; clear < clears; ++clear) read.record.clears.push_back(reader.get<std::uint64_t>());
    if (!are_clears(read.record.clears)) return false;
  }
  return reader.ok() && reader.remaining() == 0 && entries_.size() == count;
}

void epoch_book::set_pending(entry& target, bool is_pending, epoch repeat) noexcept {
  pending_ -= target.has_clear() ? 1 : 0;
  target.is_pending = is_pending;
  target.repeat = repeat;
  pending_ += target.has_clear() ? 1 : 0;
}

epoch epoch_book::known(const place& where) const noexcept {
  const auto found = entries_.find(where);
  return found == entries_.end() ? floor_ : found->second.record.number;
}

bool epoch_book::is_pending(const place& where) const noexcept {
  const auto found = entries_.find(where);
  return found != entries_.end() && found->second.has_clear();
}

std::vector<instance_identity> epoch_book::pending_on(std::uint64_t server) const {
  std::vector<instance_identity> identities;
  for (const auto& [where, what] : entries_) {
    if (where.server == server && what.has_clear()) identities.push_back(where.identity);
  }
  return identities;
}

epoch epoch_book::next(const place& where, epoch seen, epoch now) const noexcept {
  const epoch above = std::max(known(where), seen);
  const epoch made = is_pending(where) ? epoch_of_clear(above, now) : epoch_after(above, now);
  return made < epoch_limit ? made : now;  // a number that cannot be counted up: any other one is as good
}

epoch_record epoch_book::next_record(const place& location, const epoch_record& current, epoch now) const {
  epoch_record made{.number = next(location, current.number, now)};
  made.add(current);
  const auto found = entries_.find(location);
  if (found != entries_.end() && found->second.is_confirmed) made.add(found->second.record);
  return made;
}

void epoch_book::propose(const place& location, epoch number) {
  entry_of(location).proposed = number;
}

bool epoch_book::is_clear_of_another(const place& location, epoch number) const noexcept {
  const auto found = entries_.find(location);
  if (found != entries_.end() && found->second.proposed == number) return false;
  if (found != entries_.end() && found->second.is_confirmed) return !found->second.record.covers(number);
  return number > known(location) && differ_by_clear(known(location), number);
}

bool epoch_book::is_uncleared_above(const place& location) const noexcept {
  const auto found = entries_.find(location);
  return found != entries_.end() && found->second.is_uncleared_above;
}

result<void> epoch_book::adopt(const place& location, const epoch_record& record) {
  const bool is_of_another = is_clear_of_another(location, record.number);
  entry& kept = entry_of(location);
  const bool is_lost = kept.is_confirmed && !record.covers(kept.record.number);
  if (is_lost) {
    set_pending(kept, kept.is_pending, kept.record.number);
    ++kept.clears;
  } else if (record.covers(kept.repeat)) {
    set_pending(kept, kept.is_pending, 0);
  }
  set_record(kept, record);
  kept.is_uncleared_above |= is_of_another;
  return write();
}

result<void> epoch_book::look_back(const place& location, epoch number) {
  if (!is_clear_of_another(location, number)) return {};
  entry& kept = entry_of(location);
  kept.record.add({.number = number});
  kept.is_uncleared_above = true;
  set_pending(kept, kept.is_pending, number);
  ++kept.clears;
  return write();
}

result<void> epoch_book::keep_cleared_above(const place& location) {
  entry& kept = entry_of(location);
  kept.is_uncleared_above = false;
  ++kept.clears;
  return write();
}

result<void> epoch_book::keep(const place& location, const epoch_record& record) {
  entry& kept = entry_of(location);
  if (record.number > kept.record.number)  // else another connection has made a later one since
    set_record(kept, record);
  else
    kept.record.add(record);
  set_pending(kept, false, record.covers(kept.repeat) ? 0 : kept.repeat);
  return write();
}

result<void> epoch_book::keep_pending(std::uint64_t server, const std::set<instance_identity>& identities) {
  for (const instance_identity& identity : identities) {
    entry& kept = entry_of({server, identity});
    set_pending(kept, true, kept.repeat);
    ++kept.clears;
  }
  if (identities.empty()) return {};
  return write();
}

std::set<instance_identity> epoch_book::known_on(std::uint64_t server) const {
  std::set<instance_identity> identities;
  for (const auto& [where, what] : entries_) {
    if (where.server == server) identities.insert(where.identity);
  }
  return identities;
}

std::uint64_t epoch_book::clears(const place& where) const noexcept {
  const auto found = entries_.find(where);
  return found == entries_.end() ? 0 : found->second.clears;
}

/// One that is not there yet knows what all know.
epoch_book::entry& epoch_book::entry_of(const place& where) {
  const auto found = entries_.find(where);
  if (found != entries_.end()) return found->second;
  if (entries_.size() >= most_entries) forget_lowest();
  return entries_.try_emplace(where, entry{.record = {.number = floor_}}).first->second;
}

/// A newer one in the place of what was known, which it knows from then on.
void epoch_book::set_record(entry& target, const epoch_record& record) {
  epoch_record newer = record;
  if (target.is_confirmed) newer.add(target.record);
  target.is_confirmed = true;
  target.record = std::move(newer);
}

void epoch_book::forget_lowest() {
  const auto lowest = std::ranges::min_element(entries_, {}, [](const auto& each) {
    return std::pair(each.second.has_clear() || each.second.is_uncleared_above, each.second.record.number);
  });
  floor_ = std::max(floor_, lowest->second.record.number + (lowest->second.has_clear() ? 1 : 0));
  set_pending(lowest->second, false, 0);
  entries_.erase(lowest);
}

result<void> epoch_book::write() {
  byte_writer writer;
  writer.put(book_magic);
  writer.put(book_version);
  writer.put(floor_);
  writer.put(static_cast<std::uint32_t>(entries_.size()));
  for (const auto& [where, what] : entries_) {
    writer.put(where.server);
    writer.put_raw(where.identity.bytes);
    writer.put(what.record.number);
    writer.put(what.repeat);
    writer.put(static_cast<std::uint8_t>((what.is_pending ? pending_flag : 0) |
                                         (what.is_uncleared_above ? clear_above_flag : 0) |
                                         (what.is_confirmed ? confirmed_flag : 0)));
    writer.put(static_cast<std::uint8_t>(what.record.clears.size()));
    for (const epoch each : what.record.clears) writer.put(each);
  }
  writer.put(checksum_of(writer.bytes()));
  return replace_whole(file_, writer.bytes());
}

}  // namespace cenote::remote
