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
constexpr std::uint32_t book_version = 3;
constexpr std::uint8_t pending_flag = 1;
constexpr std::uint8_t clear_above_flag = 2;
constexpr epoch first_clear = epoch{1} << 52U;
constexpr unsigned clear_bits = 22;  // of an epoch's low part: two clears within 4 ms may look like one
constexpr std::size_t entry_bytes = 8 + sizeof(instance_identity) + 8 + 1;
constexpr std::size_t book_header_bytes = 8 + 4 + 8 + 4;
constexpr std::size_t most_book_bytes = book_header_bytes + epoch_book::most_entries * entry_bytes + 8;

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

void epoch_record::add(std::span<const epoch> epochs) {
  for (const epoch each : epochs) {
    if (covers(each)) continue;
    clears.insert(std::ranges::lower_bound(clears, each, std::greater()), each);
    if (clears.size() > most_clears) clears.pop_back();
  }
}

std::string record_text(const epoch_record& record) {
  std::string text = epoch_text(record.number);
  for (const epoch each : record.clears) text += epoch_text(each);
  return text;
}

epoch_record record_in(std::string_view text) {
  constexpr std::size_t digits = 16;
  if (text.size() % digits != 0 || text.size() > digits * (1 + epoch_record::most_clears)) return {};
  epoch_record record{.number = epoch_in(text.substr(0, digits))};
  for (std::size_t at = digits; at < text.size(); at += digits) {
    const epoch clear = epoch_in(text.substr(at, digits));
    if (clear < first_clear || (at > digits && clear >= record.clears.back())) return {};
    record.clears.push_back(clear);
  }
  return record;
}

namespace {

constexpr epoch low_part = (epoch{1} << clear_bits) - 1;

epoch epoch_of_clear(epoch floor, epoch now) noexcept {
  return std::max((floor >> clear_bits) + 1, now >> clear_bits) << clear_bits | ((now & low_part) >> 1U);
}

/// Another one without a clear, a small part of what is left until the next clear's number. What two nodes make of the
/// same one differs as a rule.
epoch epoch_after(epoch floor, epoch now) noexcept {
  constexpr epoch spread = 0x9e3779b97f4a7c15;
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
  if (count > most_entries || reader.remaining() != count * entry_bytes || floor_ >= epoch_limit) return false;
  for (std::uint32_t i = 0; i < count; ++i) {
    const auto server = reader.get<std::uint64_t>();
    const instance_identity identity{reader.get_array<sizeof(instance_identity)>()};
    const auto number = reader.get<std::uint64_t>();
    const auto flags = reader.get<std::uint8_t>();
    if (number >= epoch_limit || (flags & ~(pending_flag | clear_above_flag)) != 0) return false;
    entry& read = entries_[{server, identity}];
    read.number = number;
    set_pending(read, (flags & pending_flag) != 0);
    read.is_uncleared_above = (flags & clear_above_flag) != 0;
  }
  return reader.ok() && entries_.size() == count;
}

void epoch_book::set_pending(entry& kept, bool is_pending) noexcept {
  pending_ += is_pending ? 1 : 0;
  pending_ -= kept.is_pending ? 1 : 0;
  kept.is_pending = is_pending;
}

epoch epoch_book::known(const place& where) const noexcept {
  const auto found = entries_.find(where);
  return found == entries_.end() ? floor_ : found->second.number;
}

bool epoch_book::is_pending(const place& where) const noexcept {
  const auto found = entries_.find(where);
  return found != entries_.end() && found->second.is_pending;
}

std::vector<instance_identity> epoch_book::pending_on(std::uint64_t server) const {
  std::vector<instance_identity> identities;
  for (const auto& [where, what] : entries_) {
    if (where.server == server && what.is_pending) identities.push_back(where.identity);
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
  const std::array latest{current.number, known(location)};
  made.add(latest);
  made.add(current.clears);
  if (const auto found = entries_.find(location); found != entries_.end()) made.add(found->second.earlier);
  return made;
}

void epoch_book::propose(const place& location, epoch number) {
  const epoch kept_number = known(location);
  entry& kept = entry_of(location);
  kept.number = kept_number;
  kept.proposed = number;
}

bool epoch_book::is_clear_of_another(const place& location, epoch number) const noexcept {
  const auto found = entries_.find(location);
  if (found != entries_.end() && found->second.proposed == number) return false;
  epoch_record mine{.number = known(location)};
  if (number > mine.number) return differ_by_clear(mine.number, number);
  if (found != entries_.end()) mine.clears = found->second.earlier;
  return !mine.covers(number);
}

bool epoch_book::is_uncleared_above(const place& location) const noexcept {
  const auto found = entries_.find(location);
  return found != entries_.end() && found->second.is_uncleared_above;
}

result<void> epoch_book::adopt(const place& location, const epoch_record& record) {
  const bool is_of_another = is_clear_of_another(location, record.number);
  const bool was_known = entries_.contains(location);
  entry& kept = entry_of(location);
  const bool is_lost = was_known && !record.covers(kept.number);
  epoch_record all = record;
  all.add(kept.earlier);
  all.add({&kept.number, 1});
  kept.number = record.number;
  kept.earlier = std::move(all.clears);
  kept.is_uncleared_above |= is_of_another;
  if (is_lost && !kept.is_pending) {
    set_pending(kept, true);
    ++kept.clears;
  }
  return write();
}

result<void> epoch_book::look_back(const place& location, epoch number) {
  if (!is_clear_of_another(location, number)) return {};
  epoch_record all{.number = known(location)};
  entry& kept = entry_of(location);
  all.clears = std::move(kept.earlier);
  all.add({&number, 1});
  kept.number = all.number;
  kept.earlier = std::move(all.clears);
  kept.is_uncleared_above = true;
  return write();
}

result<void> epoch_book::keep_cleared_above(const place& location) {
  entry& kept = entry_of(location);
  kept.is_uncleared_above = false;
  ++kept.clears;
  return write();
}

result<void> epoch_book::keep(const place& location, const epoch_record& record) {
  const epoch known_number = known(location);  // another connection may have made a later one since
  entry& kept = entry_of(location);
  epoch_record all{.number = std::max(known_number, record.number), .clears = std::move(kept.earlier)};
  const std::array latest{record.number, known_number};
  all.add(latest);
  all.add(record.clears);
  kept.number = all.number;
  kept.earlier = std::move(all.clears);
  set_pending(kept, false);
  return write();
}

result<void> epoch_book::keep_pending(std::uint64_t server, const std::set<instance_identity>& identities) {
  for (const instance_identity& identity : identities) {
    const place where{server, identity};
    const epoch number = known(where);
    entry& kept = entry_of(where);
    kept.number = number;
    set_pending(kept, true);
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

epoch_book::entry& epoch_book::entry_of(const place& where) {
  if (entries_.size() >= most_entries && !entries_.contains(where)) forget_lowest();
  return entries_[where];
}

void epoch_book::forget_lowest() {
  const auto lowest = std::ranges::min_element(entries_, {}, [](const auto& each) {
    return std::pair(each.second.is_pending || each.second.is_uncleared_above, each.second.number);
  });
  floor_ = std::max(floor_, lowest->second.number + (lowest->second.is_pending ? 1 : 0));
  set_pending(lowest->second, false);
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
    writer.put(what.number);
    writer.put(static_cast<std::uint8_t>((what.is_pending ? pending_flag : 0) |
                                         (what.is_uncleared_above ? clear_above_flag : 0)));
  }
  writer.put(checksum_of(writer.bytes()));
  return replace_whole(file_, writer.bytes());
}

}  // namespace cenote::remote
