#include <fmt/format.h>
#include <zstd.h>

#include <algorithm>
#include <cstring>
#include <new>
#include <numeric>
#include <string_view>
#include <utility>

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

/// Appends the requests of frames. A member that takes something gives the fault of what it took, or nothing.
class frame_decoder {
 public:
  explicit frame_decoder(const file_header& header) : header_(header) { parts_.block_tokens = header.block_tokens; }

  void reserve() {
    parts_.requests.reserve(header_.requests);
    parts_.blocks.reserve(header_.references);
    parts_.identities.reserve(header_.blocks);
    firsts_.reserve(header_.requests);
  }

  std::string_view take_frame(const frame_head& frame, std::span<const std::byte> raw) {
    varint_reader bytes(raw);
    references_end_ = parts_.blocks.size() + frame.references;
    blocks_end_ = next_ + frame.blocks;
    for (std::uint32_t i = 0; i < frame.requests; ++i) {
      if (const auto fault = take_request(bytes); !fault.empty()) return fault;
    }
    if (parts_.blocks.size() != references_end_ || next_ != blocks_end_) return "its counts are not those of its head";
    if ((header_.flags & flag_identities) != 0) {
      if (const auto fault = take_identities(bytes); !fault.empty()) return fault;
    } else {
      while (parts_.identities.size() < next_) {
        parts_.identities.push_back(made_identity(header_.seed, parts_.identities.size()));
      }
    }
    return bytes.is_empty() ? "" : "bytes are left";
  }

  /// The fault of all requests together, or nothing.
  std::string_view end() {
    if (tokens_ != header_.tokens) return "the tokens are not those of the head";
    if (!std::ranges::is_sorted(runs_)) std::ranges::sort(runs_);
    for (std::size_t i = 1; i < runs_.size(); ++i) {
      if (runs_[i].first - runs_[i - 1].first < runs_[i - 1].second) return "two blocks have one identity";
    }
    return "";
  }

  [[nodiscard]] trace::numbered take() noexcept { return std::move(parts_); }
  [[nodiscard]] std::uint64_t instances() const noexcept {
    return parts_.requests.empty() ? 0 : last_instance_ + std::uint64_t{1};
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
    firsts_.push_back(parts_.blocks.size());
    const std::uint32_t expected_session = session_of_copy(flags, bytes);
    if (const auto fault = take_chain(flags, bytes); !fault.empty()) return fault;
    made.count = parts_.blocks.size() - firsts_.back();
    if (!take_tokens(made, bytes)) return "the tokens do not fit the blocks";
    if (!take_session((flags & has_session) != 0, expected_session, bytes)) return "a session is skipped";
    made.session = session_;
    if ((header_.flags & flag_engine_blocks) != 0) {
      const std::uint64_t engine_blocks = bytes.number();
      if (engine_blocks > made.count) return "the engine has more blocks than the request";
      made.engine_blocks = static_cast<std::uint32_t>(engine_blocks);
    }
    parts_.requests.push_back(made);
    return bytes.is_exhausted() ? "it ends too early" : "";
  }

  /// Takes the distance of the copy, if there is one.
  std::uint32_t session_of_copy(unsigned flags, varint_reader& bytes) {
    distance_ = (flags & has_copy) != 0 ? bytes.number() : 0;
    if (distance_ == 0 || distance_ > parts_.requests.size()) return session_;
    return parts_.requests[parts_.requests.size() - distance_].session;
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
    return has_block_twice() ? "a request has a block twice" : "";
  }

  /// Makes room for blocks, of which there is one at least and no more than the frame has.
  bool grow(std::uint64_t length) {
    if (length == 0 || length > references_end_ - parts_.blocks.size()) return false;
    parts_.blocks.resize(parts_.blocks.size() + length);
    return true;
  }
  bool copy(std::uint64_t distance, std::uint64_t length) {
    if (distance == 0 || distance > parts_.requests.size()) return false;
    const std::size_t earlier = parts_.requests.size() - distance;
    const std::size_t at = parts_.blocks.size() - firsts_.back();
    const std::size_t count = parts_.requests[earlier].count;
    if (at >= count || length > count - at || !grow(length)) return false;
    std::memcpy(&parts_.blocks[firsts_.back() + at], &parts_.blocks[firsts_[earlier] + at],
                length * sizeof(std::uint32_t));
    return true;
  }
  bool add_run(std::uint64_t start, std::uint64_t length) {
    if (start >= next_ || length > next_ - start || !grow(length)) return false;
    std::iota(parts_.blocks.end() - static_cast<std::ptrdiff_t>(length), parts_.blocks.end(),
              static_cast<std::uint32_t>(start));
    return true;
  }
  bool add_new(std::uint64_t length) {
    if (length > blocks_end_ - next_ || !grow(length)) return false;
    std::iota(parts_.blocks.end() - static_cast<std::ptrdiff_t>(length), parts_.blocks.end(),
              static_cast<std::uint32_t>(next_));
    next_ += length;
    return true;
  }

  /// A copy and new blocks have none: only other pieces may.
  bool has_block_twice() {
    const auto request = static_cast<std::uint32_t>(firsts_.size());
    users_.resize(next_, 0);
    for (std::size_t at = firsts_.back(); at < parts_.blocks.size(); ++at) {
      if (std::exchange(users_[parts_.blocks[at]], request) == request) return true;
    }
    return false;
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
    while (parts_.identities.size() < next_) {
      const std::uint64_t head = bytes.number();
      const std::uint64_t length = head >> 1;
      if (length == 0 || length > next_ - parts_.identities.size()) return "identities are too many";
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
    const bool goes_on = !runs_.empty() && first != 0 && runs_.back().first + runs_.back().second == first;
    if (goes_on) {
      runs_.back().second += length;
    } else {
      runs_.emplace_back(first, length);
    }
    parts_.identities.resize(parts_.identities.size() + length);
    std::iota(parts_.identities.end() - static_cast<std::ptrdiff_t>(length), parts_.identities.end(), first);
    identity_ = first + length - 1;
  }

  const file_header& header_;
  trace::numbered parts_;
  std::vector<std::size_t> firsts_;   ///< the place of each request's first block
  std::vector<std::uint32_t> users_;  ///< by block: the request that was last seen to have it, counted from 1
  std::vector<std::pair<std::uint64_t, std::uint64_t>> runs_;  ///< identities one by one: first, count
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
  file_reader(std::span<const std::byte> file, const reading& reading) : file_(file), reading_(reading) {}

  result<contents> read() {
    if (auto ok = read_header(); !ok) return std::unexpected(ok.error());
    if (auto ok = read_index(); !ok) return std::unexpected(ok.error());
    if (auto ok = check_totals(); !ok) return std::unexpected(ok.error());
    frame_decoder requests(header_);
    requests.reserve();
    std::size_t offset = sizeof(file_header);
    for (std::size_t i = 0; i < index_.size(); ++i) {
      if (auto ok = read_frame(i, offset, requests); !ok) return std::unexpected(ok.error());
      offset += sizeof(frame_head) + index_[i].packed;
    }
    if (const auto fault = requests.end(); !fault.empty()) return fail(error_code::malformed, std::string(fault));
    if (const auto fault = has_names() ? names_.end(requests.instances()) : ""; !fault.empty())
      return fail(error_code::malformed, std::string(fault));
    trace::numbered parts = requests.take();
    part_cutter(parts, reading_).cut();
    contents read{.requests = trace(std::move(parts)), .facts = facts_of_header()};
    read.facts.instances = names_.take();
    return read;
  }

 private:
  result<void> read_header() {
    if (!is_begun(file_)) return fail(error_code::malformed, "this is no .ctrace file");
    if (file_.size() < sizeof(header_) + sizeof(trailer_)) return cut_off();
    std::memcpy(&header_, file_.data(), sizeof(header_));
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
    const std::size_t body = file_.size() - sizeof(header_) - sizeof(trailer_);
    std::memcpy(&trailer_, file_.data() + sizeof(header_) + body, sizeof(trailer_));
    if (trailer_.magic != last_magic || trailer_.frames > body / (2 * sizeof(frame_head))) return cut_off();
    const std::size_t size = trailer_.frames * sizeof(frame_head);
    const auto bytes = file_.subspan(sizeof(header_) + body - size, size);
    if (trailer_.checksum != checksum_of(bytes)) return fail(error_code::malformed, "the index is damaged");
    index_.resize(trailer_.frames);
    std::ranges::copy(bytes, std::as_writable_bytes(std::span(index_)).begin());
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
      if (each.raw > most_raw || each.requests > each.raw / least_request || each.references > most_numbers ||
          each.blocks > each.references || has_none) {
        return fail(error_code::malformed, fmt::format("frame {}: its counts are impossible", i));
      }
      requests += each.requests;
      references += each.references;
      blocks += each.blocks;
    }
    if (requests != header_.requests || references != header_.references || blocks != header_.blocks) {
      return fail(error_code::malformed, "the counts of the index are not those of the head");
    }
    const std::uint64_t needed = memory_needed();
    if (needed <= reading_.most_bytes) return {};
    return fail(error_code::limit_exceeded,
                fmt::format("{} requests with {} references to {} blocks take {} bytes of memory, and there are {}",
                            requests, references, blocks, needed, reading_.most_bytes));
  }

  [[nodiscard]] std::uint64_t memory_needed() const noexcept {
    constexpr std::uint64_t request_bytes = sizeof(trace::arrival) + sizeof(trace::entry) + sizeof(std::size_t);
    constexpr std::uint64_t reference_bytes = sizeof(std::uint32_t) + sizeof(std::uint64_t);
    return header_.requests * request_bytes + header_.references * reference_bytes +
           header_.blocks * sizeof(std::uint64_t) + most_raw + name_bytes();
  }

  /// Names are fewer than requests.
  [[nodiscard]] std::uint64_t name_bytes() const noexcept {
    if (!has_names()) return 0;
    std::uint64_t bytes = header_.requests * (sizeof(std::string) + sizeof(std::string_view));
    for (const frame_head& each : index_) bytes += each.requests == 0 ? each.raw : 0;
    return bytes;
  }
  [[nodiscard]] bool has_names() const noexcept { return (header_.flags & flag_names) != 0; }

  result<void> read_frame(std::size_t number, std::size_t offset, frame_decoder& requests) {
    const frame_head& frame = index_[number];
    const auto broken = [&](std::string_view fault) {
      return fail(error_code::malformed, fmt::format("frame {}, at byte {}: {}", number, offset, fault));
    };
    const auto packed = file_.subspan(offset + sizeof(frame), frame.packed);
    if (std::memcmp(file_.data() + offset, &frame, sizeof(frame)) != 0) return broken("its head is not the index's");
    if (checksum_of(packed) != frame.checksum) return broken("it is damaged");
    raw_.resize(std::max<std::size_t>(raw_.size(), frame.raw));
    const std::size_t size = ::ZSTD_decompress(raw_.data(), frame.raw, packed.data(), packed.size());
    if (::ZSTD_isError(size) != 0 || size != frame.raw) return broken("it does not unpack");
    const std::span<const std::byte> raw = std::span(raw_).first(size);
    if (frame.requests > 0 && number > 0 && index_[number - 1].requests == 0)
      return broken("requests stand behind names");
    const auto fault =
        frame.requests == 0 ? names_.take_frame(raw, requests.instances()) : requests.take_frame(frame, raw);
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

  std::span<const std::byte> file_;
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
    return file_reader(file, reading).read();
  } catch (const std::bad_alloc&) {
    return fail(error_code::limit_exceeded, "there is not enough memory for the requests");
  }
}

}  // namespace cenote::formats::ctrace
