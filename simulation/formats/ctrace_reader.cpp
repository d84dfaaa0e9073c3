#include <fmt/format.h>
#include <zstd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <new>
#include <numeric>
#include <string_view>
#include <utility>
#include <vector>

#include "core/checksum.hpp"
#include "core/text.hpp"
#include "simulation/formats/ctrace.hpp"
#include "simulation/formats/ctrace_layout.hpp"
#include "simulation/formats/format.hpp"

namespace cenote::formats::ctrace {

namespace {

using simulation::chain_access;
using simulation::trace;

constexpr std::size_t least_request = 2;  // bytes
constexpr std::int64_t most_difference = std::int64_t{1} << 56;
constexpr std::uint64_t most_index_bytes = std::uint64_t{64} << 20;  // where the memory for a file is bounded

/// The bytes of a frame. Behind their end come zeros, and it is exhausted.
class varint_reader {
 public:
  explicit varint_reader(std::span<const std::byte> bytes)
      : next_byte_(bytes.data()), end_(bytes.data() + bytes.size()) {}

  [[nodiscard]] unsigned byte() noexcept {
    if (next_byte_ == end_) {
      exhausted_ = true;
      return 0;
    }
    return static_cast<unsigned>(*next_byte_++);
  }
  [[nodiscard]] std::uint64_t number() noexcept {
    if (next_byte_ != end_ && static_cast<unsigned>(*next_byte_) < 0x80) return static_cast<unsigned>(*next_byte_++);
    std::uint64_t value = 0;
    for (unsigned shift = 0; shift < 64; shift += 7) {
      const std::uint64_t next = byte();
      value |= (next & 0x7f) << shift;
      if (shift == 63 && next > 1) exhausted_ = true;
      if (next < 0x80) return value;
    }
    exhausted_ = true;
    return 0;
  }
  [[nodiscard]] std::span<const std::byte> take(std::uint64_t size) noexcept {
    if (size > static_cast<std::uint64_t>(end_ - next_byte_)) {
      exhausted_ = true;
      return {};
    }
    const std::span<const std::byte> taken(next_byte_, static_cast<std::size_t>(size));
    next_byte_ += size;
    return taken;
  }
  /// Something was read that is not there, or was no number.
  [[nodiscard]] bool is_exhausted() const noexcept { return exhausted_; }
  [[nodiscard]] bool is_empty() const noexcept { return next_byte_ == end_; }

 private:
  const std::byte* next_byte_;
  const std::byte* end_;
  bool exhausted_ = false;
};

/// Where the frames of a file lie.
class frame_source {
 public:
  frame_source() = default;
  frame_source(const frame_source&) = delete;
  frame_source& operator=(const frame_source&) = delete;
  virtual ~frame_source() = default;
  [[nodiscard]] virtual std::uint64_t size() const noexcept = 0;
  /// Good until the next call. They are there.
  [[nodiscard]] virtual result<std::span<const std::byte>> bytes(std::uint64_t offset, std::size_t size) = 0;
};

class frames_in_memory final : public frame_source {
 public:
  explicit frames_in_memory(std::span<const std::byte> file) : file_(file) {}
  [[nodiscard]] std::uint64_t size() const noexcept override { return file_.size(); }
  [[nodiscard]] result<std::span<const std::byte>> bytes(std::uint64_t offset, std::size_t size) override {
    return file_.subspan(offset, size);
  }

 private:
  std::span<const std::byte> file_;
};

class frames_at_places final : public frame_source {
 public:
  explicit frames_at_places(placed_bytes& file) : file_(file) {}
  [[nodiscard]] std::uint64_t size() const noexcept override { return file_.size(); }
  [[nodiscard]] result<std::span<const std::byte>> bytes(std::uint64_t offset, std::size_t size) override {
    bytes_.resize(std::max(bytes_.size(), size));
    const auto read = std::span(bytes_).first(size);
    if (auto ok = file_.read(offset, read); !ok) return std::unexpected(ok.error());
    return read;
  }

 private:
  placed_bytes& file_;
  std::vector<std::byte> bytes_;
};

/// All requests of a file, as a trace wants them.
class whole_chains {
 public:
  explicit whole_chains(const file_header& header) {
    parts_.block_tokens = header.block_tokens;
    parts_.requests.reserve(header.requests);
    parts_.blocks.reserve(header.references);
    parts_.identities.reserve(header.blocks);
    firsts_.reserve(header.requests);
  }

  [[nodiscard]] std::uint64_t requests() const noexcept { return parts_.requests.size(); }
  [[nodiscard]] std::uint64_t references() const noexcept { return parts_.blocks.size(); }
  [[nodiscard]] std::uint64_t identities() const noexcept { return parts_.identities.size(); }
  [[nodiscard]] std::uint32_t session_of(std::uint64_t distance) const noexcept {
    return parts_.requests[parts_.requests.size() - distance].session;
  }
  void begin_request() { firsts_.push_back(parts_.blocks.size()); }
  [[nodiscard]] std::size_t count() const noexcept { return parts_.blocks.size() - firsts_.back(); }
  /// More places of the request's chain; empty: it may have no more.
  [[nodiscard]] std::span<std::uint32_t> grow(std::uint64_t length) {
    parts_.blocks.resize(parts_.blocks.size() + length);
    return std::span(parts_.blocks).last(length);
  }
  /// Goes on as the earlier request does. False: that has no such blocks.
  [[nodiscard]] bool copy(std::uint64_t distance, std::uint64_t length) {
    const std::size_t earlier = parts_.requests.size() - distance;
    const std::size_t at = count();
    const std::size_t has = parts_.requests[earlier].count;
    if (at >= has || length > has - at) return false;
    const auto target = grow(length);
    std::memcpy(target.data(), &parts_.blocks[firsts_[earlier] + at], target.size_bytes());
    return true;
  }
  [[nodiscard]] bool has_block_twice(std::uint64_t blocks) {
    const auto request = static_cast<std::uint32_t>(firsts_.size());
    users_.resize(blocks, 0);
    for (std::size_t at = firsts_.back(); at < parts_.blocks.size(); ++at) {
      if (std::exchange(users_[parts_.blocks[at]], request) == request) return true;
    }
    return false;
  }
  void end_request(const trace::arrival& request) { parts_.requests.push_back(request); }

  void add_identities(std::uint64_t first, std::uint64_t length) {
    const bool goes_on = !runs_.empty() && first != 0 && runs_.back().first + runs_.back().second == first;
    if (goes_on) {
      runs_.back().second += length;
    } else {
      runs_.emplace_back(first, length);
    }
    parts_.identities.resize(parts_.identities.size() + length);
    std::iota(parts_.identities.end() - static_cast<std::ptrdiff_t>(length), parts_.identities.end(), first);
  }
  void make_identities(std::uint64_t seed, std::uint64_t blocks) {
    while (parts_.identities.size() < blocks) {
      parts_.identities.push_back(made_identity(seed, parts_.identities.size()));
    }
  }
  [[nodiscard]] bool has_identity_twice() {
    if (!std::ranges::is_sorted(runs_)) std::ranges::sort(runs_);
    for (std::size_t i = 1; i < runs_.size(); ++i) {
      if (runs_[i].first - runs_[i - 1].first < runs_[i - 1].second) return true;
    }
    return false;
  }
  [[nodiscard]] result<void> state() const { return {}; }

  [[nodiscard]] trace::numbered take() noexcept {
    firsts_ = {};
    users_ = {};
    runs_ = {};
    return std::move(parts_);
  }

 private:
  trace::numbered parts_;
  std::vector<std::size_t> firsts_;   ///< the place of each request's first block
  std::vector<std::uint32_t> users_;  ///< by block: the request that was last seen to have it, counted from 1
  std::vector<std::pair<std::uint64_t, std::uint64_t>> runs_;  ///< identities one by one: first, count
};

/// Numbers one behind the other, of which the latest are in memory and all others in a file.
template <class Number>
class spilled_numbers {
 public:
  spilled_numbers(placed_bytes& file, std::size_t latest) : file_(file), latest_(latest) {
    recent_.reserve(2 * latest);
  }

  [[nodiscard]] std::uint64_t size() const noexcept { return spilled_ + recent_.size(); }
  [[nodiscard]] result<void> append(std::span<const Number> numbers) {
    if (recent_.size() + numbers.size() > 2 * latest_) {
      if (auto ok = spill(); !ok) return ok;
    }
    recent_.insert(recent_.end(), numbers.begin(), numbers.end());
    return {};
  }
  /// Numbers that are there.
  [[nodiscard]] result<void> read(std::uint64_t place, std::span<Number> target) const {
    const std::uint64_t older = place < spilled_ ? std::min<std::uint64_t>(spilled_ - place, target.size()) : 0;
    if (older > 0) {
      auto ok = file_.read(place * sizeof(Number), std::as_writable_bytes(target.first(older)));
      if (!ok) return ok;
    }
    const auto rest = target.subspan(older);
    const auto from = recent_.begin() + static_cast<std::ptrdiff_t>(place + older - spilled_);
    std::copy_n(from, rest.empty() ? 0 : rest.size(), rest.begin());
    return {};
  }

 private:
  [[nodiscard]] result<void> spill() {
    const std::size_t count = recent_.size() - std::min(recent_.size(), latest_);
    const auto oldest = std::span(recent_).first(count);
    if (auto ok = file_.write(spilled_ * sizeof(Number), std::as_bytes(oldest)); !ok) return ok;
    recent_.erase(recent_.begin(), recent_.begin() + static_cast<std::ptrdiff_t>(count));
    spilled_ += count;
    return {};
  }

  placed_bytes& file_;
  std::size_t latest_;
  std::uint64_t spilled_ = 0;
  std::vector<Number> recent_;
};

/// Hands the requests of a file on, one by one, and remembers their chains for later ones.
class passing_chains {
 public:
  passing_chains(const file_header& header, const older_chains& older, const passed_listener& listener)
      : blocks_(older.blocks, older.kept_blocks),
        ends_(older.ends, older.kept_requests),
        listener_(listener),
        block_tokens_(header.block_tokens) {}

  [[nodiscard]] std::uint64_t requests() const noexcept { return ends_.size(); }
  [[nodiscard]] std::uint64_t references() const noexcept { return blocks_.size() + chain_.size(); }
  [[nodiscard]] std::uint64_t identities() const noexcept { return identities_; }
  /// Sessions are one.
  [[nodiscard]] static std::uint32_t session_of(std::uint64_t /*distance*/) noexcept { return 0; }
  void begin_request() { chain_.clear(); }
  [[nodiscard]] std::size_t count() const noexcept { return chain_.size(); }
  [[nodiscard]] std::span<std::uint32_t> grow(std::uint64_t length) {
    if (length > most_chain - chain_.size()) {
      state_ = fail(error_code::limit_exceeded, fmt::format("a request has over {} blocks", most_chain));
      return {};
    }
    chain_.resize(chain_.size() + length);
    return std::span(chain_).last(length);
  }
  [[nodiscard]] bool copy(std::uint64_t distance, std::uint64_t length) {
    const std::uint64_t earlier = requests() - distance;
    std::array<std::uint64_t, 2> ends{};  // of the request before it, and its own
    auto read = earlier == 0 ? ends_.read(0, std::span(ends).last(1)) : ends_.read(earlier - 1, ends);
    const std::uint64_t at = ends[0] + count();
    if (!read || at >= ends[1] || length > ends[1] - at) return keep(read);
    const auto target = grow(length);
    return !target.empty() && keep(blocks_.read(at, target), true);
  }
  [[nodiscard]] bool has_block_twice(std::uint64_t /*blocks*/) {
    sorted_.assign(chain_.begin(), chain_.end());
    std::ranges::sort(sorted_);
    return std::ranges::adjacent_find(sorted_) != sorted_.end();
  }
  void end_request(const trace::arrival& request) {
    const std::uint64_t end = references();
    if (state_) state_ = blocks_.append(chain_);
    if (state_) state_ = ends_.append(std::span(&end, 1));
    if (state_) state_ = listener_(request, chain_, block_tokens_);
    chain_.clear();
  }
  void add_identities(std::uint64_t /*first*/, std::uint64_t length) noexcept { identities_ += length; }
  void make_identities(std::uint64_t /*seed*/, std::uint64_t blocks) noexcept { identities_ = blocks; }
  /// Blocks go by their numbers.
  [[nodiscard]] static bool has_identity_twice() noexcept { return false; }
  [[nodiscard]] const result<void>& state() const noexcept { return state_; }

 private:
  static constexpr std::uint64_t most_chain = std::uint64_t{1} << 24;

  /// `copied`, unless something failed.
  bool keep(const result<void>& outcome, bool copied = false) {
    if (!outcome && state_) state_ = outcome;
    return outcome && copied;
  }

  spilled_numbers<std::uint32_t> blocks_;
  spilled_numbers<std::uint64_t> ends_;  ///< by request: the place behind its last block
  const passed_listener& listener_;
  std::uint64_t block_tokens_;
  std::vector<std::uint32_t> chain_;
  std::vector<std::uint32_t> sorted_;
  std::uint64_t identities_ = 0;
  result<void> state_;
};

/// Takes the requests of frames. A member that takes something gives the fault of what it took, or nothing.
template <class Chains>
class frame_decoder {
 public:
  frame_decoder(const file_header& header, Chains& chains) : header_(header), chains_(chains) {}

  std::string_view take_frame(const frame_head& frame, std::span<const std::byte> raw) {
    varint_reader bytes(raw);
    references_end_ = chains_.references() + frame.references;
    blocks_end_ = next_ + frame.blocks;
    for (std::uint32_t i = 0; i < frame.requests; ++i) {
      if (const auto fault = take_request(bytes); !fault.empty()) return fault;
    }
    if (chains_.references() != references_end_ || next_ != blocks_end_) return "its counts are not those of its head";
    if ((header_.flags & flag_identities) != 0) {
      if (const auto fault = take_identities(bytes); !fault.empty()) return fault;
    } else {
      chains_.make_identities(header_.seed, next_);
    }
    return bytes.is_empty() ? "" : "bytes are left";
  }

  /// The fault of all requests together, or nothing.
  std::string_view end() {
    if (tokens_ != header_.tokens) return "the tokens are not those of the head";
    return chains_.has_identity_twice() ? "two blocks have one identity" : "";
  }

  /// Of the chains: an error that is no fault of the file's.
  [[nodiscard]] result<void> state() const { return chains_.state(); }
  [[nodiscard]] std::uint64_t instances() const noexcept {
    return chains_.requests() == 0 ? 0 : last_instance_ + std::uint64_t{1};
  }

 private:
  std::string_view take_request(varint_reader& bytes) {
    const unsigned flags = bytes.byte();
    trace::arrival made;
    const std::uint64_t later = (flags & has_time) != 0 ? bytes.number() : 0;
    if (later > trace::most_ms - time_ms_) return "a time is too large";
    made.time_ms = time_ms_ += later;
    if (flags >> access_shift > static_cast<unsigned>(chain_access::write)) return "an access is unknown";
    made.access = static_cast<chain_access>(flags >> access_shift);
    if ((flags & has_instance) != 0) {
      const std::uint64_t instance = bytes.number();
      if (instance > last_instance_ + std::uint64_t{1}) return "an instance is skipped";
      instance_ = static_cast<std::uint32_t>(instance);
      last_instance_ = std::max(last_instance_, instance_);
    }
    made.instance = instance_;
    chains_.begin_request();
    const std::uint32_t expected_session = session_of_copy(flags, bytes);
    if (const auto fault = take_chain(flags, bytes); !fault.empty()) return fault;
    made.count = chains_.count();
    if (!take_tokens(made, bytes)) return "the tokens do not fit the blocks";
    if (!take_session((flags & has_session) != 0, expected_session, bytes)) return "a session is skipped";
    made.session = session_;
    if ((header_.flags & flag_engine_blocks) != 0) {
      const std::uint64_t engine_blocks = bytes.number();
      if (engine_blocks > made.count) return "the engine has more blocks than the request";
      made.engine_blocks = static_cast<std::uint32_t>(engine_blocks);
    }
    chains_.end_request(made);
    return bytes.is_exhausted() ? "it ends too early" : "";
  }

  /// Takes the distance of the copy, if there is one.
  std::uint32_t session_of_copy(unsigned flags, varint_reader& bytes) {
    distance_ = (flags & has_copy) != 0 ? bytes.number() : 0;
    return distance_ == 0 || distance_ > chains_.requests() ? session_ : chains_.session_of(distance_);
  }

  std::string_view take_chain(unsigned flags, varint_reader& bytes) {
    if ((flags & has_copy) != 0 && !copy(distance_, bytes.number())) return "a copy is of nothing";
    if ((flags & has_new) != 0 && !add_new(bytes.number())) return "new blocks are too many";
    if ((flags & has_pieces) == 0) return "";
    for (std::uint64_t left = bytes.number(); left > 0; --left) {
      const std::uint64_t head = bytes.number();
      const std::uint64_t length = head >> chain_step_bits;
      bool taken = false;
      switch (head & ((1U << chain_step_bits) - 1)) {
        case static_cast<unsigned>(chain_step::fresh): taken = add_new(length); break;
        case static_cast<unsigned>(chain_step::run): taken = add_run(bytes.number(), length); break;
        case static_cast<unsigned>(chain_step::copy): taken = copy(bytes.number(), length); break;
        default: break;
      }
      if (!taken) return "a piece is of nothing";
    }
    return chains_.has_block_twice(next_) ? "a request has a block twice" : "";
  }

  /// There is one block at least, and no more than the frame has.
  [[nodiscard]] bool fits(std::uint64_t length) const {
    return length != 0 && length <= references_end_ - chains_.references();
  }
  bool copy(std::uint64_t distance, std::uint64_t length) {
    return distance != 0 && distance <= chains_.requests() && fits(length) && chains_.copy(distance, length);
  }
  bool add_run(std::uint64_t start, std::uint64_t length) {
    return start < next_ && length <= next_ - start && append_run(start, length);
  }
  bool add_new(std::uint64_t length) {
    if (length > blocks_end_ - next_ || !append_run(next_, length)) return false;
    next_ += length;
    return true;
  }
  bool append_run(std::uint64_t start, std::uint64_t length) {
    if (!fits(length)) return false;
    const auto places = chains_.grow(length);
    std::iota(places.begin(), places.end(), static_cast<std::uint32_t>(start));
    return !places.empty();
  }

  bool take_tokens(trace::arrival& request, varint_reader& bytes) {
    const std::int64_t difference = unzigzag(bytes.number());
    if (difference > most_difference || difference < -most_difference) return false;
    const std::int64_t tokens = static_cast<std::int64_t>(request.count * header_.block_tokens) + difference;
    if (tokens < 0 || tokens > static_cast<std::int64_t>(most_tokens)) return false;
    request.tokens = static_cast<std::uint64_t>(tokens);
    tokens_ += request.tokens;
    return difference > -static_cast<std::int64_t>(header_.block_tokens);
  }

  bool take_session(bool is_given, std::uint32_t expected, varint_reader& bytes) {
    session_ = expected;
    if (is_given) {
      const std::uint64_t code = bytes.number();
      if (code > sessions_) return false;
      session_ = code == 0 ? sessions_ : static_cast<std::uint32_t>(code - 1);
    }
    sessions_ = std::max(sessions_, session_ + 1);
    return true;
  }

  std::string_view take_identities(varint_reader& bytes) {
    while (chains_.identities() < next_) {
      const std::uint64_t head = bytes.number();
      const std::uint64_t length = head >> 1;
      if (length == 0 || length > next_ - chains_.identities()) return "identities are too many";
      if ((head & 1) != 0) {
        const auto literal = bytes.take(length * sizeof(std::uint64_t));
        if (bytes.is_exhausted()) return "it ends too early";
        for (std::size_t i = 0; i < length; ++i) {
          std::memcpy(&identity_, &literal[i * sizeof(identity_)], sizeof(identity_));
          add_identities(identity_, 1);
        }
        continue;
      }
      const std::uint64_t first = identity_ + 1 + static_cast<std::uint64_t>(unzigzag(bytes.number()));
      if (length - 1 > ~first) return "an identity is too large";
      add_identities(first, length);
    }
    return bytes.is_exhausted() ? "it ends too early" : "";
  }
  void add_identities(std::uint64_t first, std::uint64_t length) {
    chains_.add_identities(first, length);
    identity_ = first + length - 1;
  }

  const file_header& header_;
  Chains& chains_;
  std::uint64_t references_end_ = 0;
  std::uint64_t blocks_end_ = 0;
  std::uint64_t next_ = 0;                      ///< the number of the next new block
  std::uint64_t identity_ = ~std::uint64_t{0};  ///< the last one
  std::uint64_t time_ms_ = 0;
  std::uint64_t tokens_ = 0;
  std::uint64_t distance_ = 0;
  std::uint32_t instance_ = 0;
  std::uint32_t last_instance_ = 0;
  std::uint32_t session_ = 0;
  std::uint32_t sessions_ = 0;
};

/// The names of instances, in frames behind those of requests.
class name_decoder {
 public:
  /// Gives the fault of the frame, or nothing.
  std::string_view take_frame(std::span<const std::byte> raw, std::uint64_t instances) {
    for (varint_reader bytes(raw); !bytes.is_empty();) {
      if (names_.size() == instances) return "there are more names than instances";
      const auto name = bytes.take(bytes.number());
      if (bytes.is_exhausted()) return "it ends too early";
      names_.emplace_back(reinterpret_cast<const char*>(name.data()), name.size());
      if (as_utf8(names_.back()) != names_.back()) return "a name is no UTF-8";
    }
    return "";
  }

  /// The fault of all names together, or nothing.
  [[nodiscard]] std::string_view end(std::uint64_t instances) const {
    if (names_.size() != instances) return "there are fewer names than instances";
    std::vector<std::string_view> sorted(names_.begin(), names_.end());
    std::ranges::sort(sorted);
    return std::ranges::adjacent_find(sorted) == sorted.end() ? "" : "two instances have one name";
  }

  [[nodiscard]] std::vector<std::string> take() noexcept { return std::move(names_); }

 private:
  std::vector<std::string> names_;
};

/// Keeps the first requests, and of those the full blocks.
class part_cutter {
 public:
  part_cutter(trace::numbered& parts, const reading& reading) : parts_(parts), reading_(reading) {}

  void cut() {
    const std::size_t most = reading_.limit == 0 ? parts_.requests.size() : reading_.limit;
    const auto is_cut = [&](const trace::arrival& each) { return full_count(each) != each.count; };
    if (most >= parts_.requests.size() && std::ranges::none_of(parts_.requests, is_cut)) return;
    numbers_.assign(parts_.identities.size(), none);
    std::size_t first = 0;
    for (std::size_t i = 0; i < std::min(most, parts_.requests.size()); ++i) {
      const trace::arrival each = parts_.requests[i];  // its place may be taken
      take(each, first);
      first += each.count;
    }
    parts_.requests.resize(requests_);
    parts_.blocks.resize(size_);
    parts_.identities = std::move(identities_);
  }

 private:
  static constexpr std::uint32_t none = ~std::uint32_t{0};

  [[nodiscard]] std::size_t full_count(const trace::arrival& request) const noexcept {
    if (!reading_.full_blocks) return request.count;
    return std::min<std::uint64_t>(request.count, request.tokens / parts_.block_tokens);
  }

  /// Moves a request to the front; a read with the write of the same chain behind it becomes one.
  void take(const trace::arrival& request, std::size_t first) {
    trace::arrival made = request;
    made.count = full_count(request);
    const std::size_t begin = size_;
    for (std::size_t i = 0; i < made.count; ++i) parts_.blocks[size_++] = number_of(parts_.blocks[first + i]);
    if (requests_ > 0 && are_halves(parts_.requests[requests_ - 1], made, begin)) {
      parts_.requests[requests_ - 1].access = chain_access::both;
      size_ = begin;
    } else {
      parts_.requests[requests_++] = made;
    }
  }

  [[nodiscard]] bool are_halves(const trace::arrival& read, const trace::arrival& write, std::size_t begin) const {
    const auto blocks = parts_.blocks.begin() + static_cast<std::ptrdiff_t>(begin);
    return read.access == chain_access::read && write.access == chain_access::write &&
           read.instance == write.instance && read.count == write.count &&
           std::equal(blocks - static_cast<std::ptrdiff_t>(read.count), blocks, blocks);
  }

  std::uint32_t number_of(std::uint32_t block) {
    if (numbers_[block] == none) {
      numbers_[block] = static_cast<std::uint32_t>(identities_.size());
      identities_.push_back(parts_.identities[block]);
    }
    return numbers_[block];
  }

  trace::numbered& parts_;
  const reading& reading_;
  std::vector<std::uint32_t> numbers_;  ///< new ones, by old ones
  std::size_t requests_ = 0;
  std::size_t size_ = 0;
  huge_vector<std::uint64_t> identities_;
};

class file_reader {
 public:
  file_reader(frame_source& file, const reading& reading) : file_(file), reading_(reading) {}

  result<contents> read() {
    if (auto ok = begin(); !ok) return std::unexpected(ok.error());
    if (auto ok = check_needed(memory_needed()); !ok) return std::unexpected(ok.error());
    whole_chains chains(header_);
    const auto instances = read_frames(chains, &names_);
    if (!instances) return std::unexpected(instances.error());
    if (const auto fault = has_names() ? names_.end(*instances) : ""; !fault.empty())
      return fail(error_code::malformed, std::string(fault));
    trace::numbered parts = chains.take();
    part_cutter(parts, reading_).cut();
    contents read{.requests = trace(std::move(parts)), .facts = facts_of_header()};
    read.facts.instances = names_.take();
    return read;
  }

  result<passed> pass(const older_chains& older, const passed_listener& listener) {
    if (auto ok = begin(); !ok) return std::unexpected(ok.error());
    if (auto ok = check_room(older); !ok) return std::unexpected(ok.error());
    passing_chains chains(header_, older, listener);
    const auto instances = read_frames(chains, nullptr);
    if (!instances) return std::unexpected(instances.error());
    return passed{.block_tokens = header_.block_tokens, .instances = *instances, .facts = facts_of_header()};
  }

 private:
  result<void> begin() {
    if (auto ok = read_header(); !ok) return ok;
    if (auto ok = read_index(); !ok) return ok;
    return check_totals();
  }

  [[nodiscard]] result<void> check_room(const older_chains& older) const {
    const bool spills = header_.references > older.kept_blocks || header_.requests > older.kept_requests;
    const std::uint64_t bytes = header_.references * sizeof(std::uint32_t) + header_.requests * sizeof(std::uint64_t);
    if (!spills || bytes <= older.room) return {};
    return fail(error_code::limit_exceeded,
                fmt::format("{} requests with {} references take {} bytes of temporary files, and there are {}",
                            header_.requests, header_.references, bytes, older.room));
  }

  /// The number of instances. Names are passed over where there is no decoder of them.
  template <class Chains>
  result<std::uint64_t> read_frames(Chains& chains, name_decoder* names) {
    frame_decoder<Chains> requests(header_, chains);
    std::uint64_t offset = sizeof(file_header);
    for (std::size_t i = 0; i < index_.size(); ++i) {
      if (auto ok = read_frame(i, offset, requests, names); !ok) return std::unexpected(ok.error());
      offset += sizeof(frame_head) + index_[i].packed;
    }
    if (const auto fault = requests.end(); !fault.empty()) return fail(error_code::malformed, std::string(fault));
    return requests.instances();
  }

  result<void> read_header() {
    const auto head = file_.bytes(0, std::min<std::uint64_t>(file_.size(), sizeof(header_)));
    if (!head) return std::unexpected(head.error());
    if (!is_begun(*head)) return fail(error_code::malformed, "this is no .ctrace file");
    if (file_.size() < sizeof(header_) + sizeof(trailer_)) return cut_off();
    std::memcpy(&header_, head->data(), sizeof(header_));
    if (header_.version != version && header_.version != second_version) {
      return fail(error_code::unsupported, fmt::format("version {} of .ctrace; this program reads versions {} and {}",
                                                       header_.version, version, second_version));
    }
    const bool is_sound = header_.size == sizeof(header_) && header_.block_tokens > 0 &&
                          header_.block_tokens <= most_block_tokens && (header_.flags & ~all_flags) == 0 &&
                          ((header_.flags & second_flags) != 0) == (header_.version == second_version) &&
                          std::max({header_.requests, header_.references, header_.blocks}) <= most_numbers &&
                          header_.left_out <= header_.lines;
    if (header_.checksum != checksum_of(&header_, offsetof(file_header, checksum)) || !is_sound) {
      return fail(error_code::malformed, "the head is damaged");
    }
    return {};
  }

  [[nodiscard]] static std::unexpected<error> cut_off() {
    return fail(error_code::malformed, "the end is cut off or damaged");
  }

  result<void> read_index() {
    const std::uint64_t body = file_.size() - sizeof(header_) - sizeof(trailer_);
    const auto tail = file_.bytes(sizeof(header_) + body, sizeof(trailer_));
    if (!tail) return std::unexpected(tail.error());
    std::memcpy(&trailer_, tail->data(), sizeof(trailer_));
    if (trailer_.magic != last_magic || trailer_.frames > body / (2 * sizeof(frame_head))) return cut_off();
    const std::size_t size = trailer_.frames * sizeof(frame_head);
    if (auto ok = check_needed(2 * std::uint64_t{size}); !ok) return ok;
    const auto bytes = file_.bytes(sizeof(header_) + body - size, size);
    if (!bytes) return std::unexpected(bytes.error());
    if (trailer_.checksum != checksum_of(*bytes)) return fail(error_code::malformed, "the index is damaged");
    index_.resize(trailer_.frames);
    std::ranges::copy(*bytes, std::as_writable_bytes(std::span(index_)).begin());
    std::uint64_t all = size;
    for (const frame_head& each : index_) all += sizeof(frame_head) + each.packed;
    if (all != body) return fail(error_code::malformed, "the frames of the index do not fill the file");
    return {};
  }

  /// Sums do not wrap: of references each is within 32 bits, and frames are fewer than the file's bytes.
  result<void> check_totals() {
    std::uint64_t requests = 0;
    std::uint64_t references = 0;
    std::uint64_t blocks = 0;
    for (std::size_t i = 0; i < index_.size(); ++i) {
      const frame_head& each = index_[i];
      const bool has_none = each.requests == 0 && (each.references != 0 || !has_names());
      if (each.raw > most_raw || each.packed > ::ZSTD_compressBound(most_raw) ||
          each.requests > each.raw / least_request || each.references > most_numbers || each.blocks > each.references ||
          has_none) {
        return fail(error_code::malformed, fmt::format("frame {}: its counts are impossible", i));
      }
      requests += each.requests;
      references += each.references;
      blocks += each.blocks;
    }
    if (requests != header_.requests || references != header_.references || blocks != header_.blocks) {
      return fail(error_code::malformed, "the counts of the index are not those of the head");
    }
    return {};
  }

  [[nodiscard]] result<void> check_needed(std::uint64_t bytes) const {
    if (bytes <= reading_.most_bytes) return {};
    return fail(error_code::limit_exceeded,
                fmt::format("{} requests with {} references to {} blocks take {} bytes of memory, and there are {}",
                            header_.requests, header_.references, header_.blocks, bytes, reading_.most_bytes));
  }

  [[nodiscard]] std::uint64_t memory_needed() const noexcept {
    constexpr std::uint64_t request_bytes = sizeof(trace::arrival) + sizeof(trace::entry) + sizeof(std::size_t);
    constexpr std::uint64_t reference_bytes = sizeof(std::uint32_t) + sizeof(std::uint64_t);
    return header_.requests * request_bytes + header_.references * reference_bytes + header_.blocks * block_bytes() +
           most_raw + name_bytes();
  }

  /// Its identity; with those of a file its last user and the run of its identity, which may be moved as it grows,
  /// else what a cut makes of both.
  [[nodiscard]] std::uint64_t block_bytes() const noexcept {
    constexpr std::uint64_t run_bytes = 2 * sizeof(std::pair<std::uint64_t, std::uint64_t>);
    const bool has_identities = (header_.flags & flag_identities) != 0;
    return sizeof(std::uint64_t) + sizeof(std::uint32_t) + (has_identities ? run_bytes : sizeof(std::uint64_t));
  }

  /// Names are fewer than requests.
  [[nodiscard]] std::uint64_t name_bytes() const noexcept {
    if (!has_names()) return 0;
    std::uint64_t bytes = header_.requests * (sizeof(std::string) + sizeof(std::string_view));
    for (const frame_head& each : index_) bytes += each.requests == 0 ? each.raw : 0;
    return bytes;
  }
  [[nodiscard]] bool has_names() const noexcept { return (header_.flags & flag_names) != 0; }

  template <class Chains>
  result<void> read_frame(std::size_t number, std::uint64_t offset, frame_decoder<Chains>& requests,
                          name_decoder* names) {
    const frame_head& frame = index_[number];
    const auto broken = [&](std::string_view fault) {
      return fail(error_code::malformed, fmt::format("frame {}, at byte {}: {}", number, offset, fault));
    };
    const auto bytes = file_.bytes(offset, sizeof(frame) + frame.packed);
    if (!bytes) return std::unexpected(bytes.error());
    const auto packed = bytes->subspan(sizeof(frame));
    if (std::memcmp(bytes->data(), &frame, sizeof(frame)) != 0) return broken("its head is not the index's");
    if (checksum_of(packed) != frame.checksum) return broken("it is damaged");
    if (frame.requests > 0 && number > 0 && index_[number - 1].requests == 0)
      return broken("requests stand behind names");
    raw_.resize(std::max<std::size_t>(raw_.size(), frame.raw));
    const std::size_t size = ::ZSTD_decompress(raw_.data(), frame.raw, packed.data(), packed.size());
    if (::ZSTD_isError(size) != 0 || size != frame.raw) return broken("it does not unpack");
    const std::span<const std::byte> raw = std::span(raw_).first(size);
    std::string_view fault;
    if (frame.requests > 0) {
      fault = requests.take_frame(frame, raw);
    } else if (names != nullptr) {
      fault = names->take_frame(raw, requests.instances());
    }
    if (auto ok = requests.state(); !ok) return ok;
    if (!fault.empty()) return broken(fault);
    return {};
  }

  [[nodiscard]] facts facts_of_header() const {
    const bool has_identities = (header_.flags & flag_identities) != 0;
    return {.lines = header_.lines,
            .left_out = header_.left_out,
            .full_blocks = (header_.flags & flag_full_blocks) != 0,
            .anonymised = (header_.flags & flag_anonymised) != 0,
            .seed = has_identities ? std::nullopt : std::optional(header_.seed)};
  }

  frame_source& file_;
  const reading& reading_;
  file_header header_;
  file_trailer trailer_;
  std::vector<frame_head> index_;
  std::vector<std::byte> raw_;
  name_decoder names_;
};

}  // namespace

bool is_begun(std::span<const std::byte> bytes) noexcept {
  return bytes.size() >= first_magic.size() && std::memcmp(bytes.data(), first_magic.data(), first_magic.size()) == 0;
}

result<contents> decode(std::span<const std::byte> file, const reading& reading) {
  try {
    frames_in_memory frames(file);
    return file_reader(frames, reading).read();
  } catch (const std::bad_alloc&) {
    return fail(error_code::limit_exceeded, "there is not enough memory for the requests");
  }
}

result<passed> pass_requests(placed_bytes& file, const older_chains& older, const passed_listener& listener) {
  try {
    frames_at_places frames(file);
    const reading bounded{.most_bytes = most_index_bytes};
    return file_reader(frames, bounded).pass(older, listener);
  } catch (const std::bad_alloc&) {
    return fail(error_code::limit_exceeded, "there is not enough memory for a request");
  }
}

}  // namespace cenote::formats::ctrace
