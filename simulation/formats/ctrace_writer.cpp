#include <fmt/format.h>
#include <zstd.h>

#include <algorithm>
#include <cstring>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "core/checksum.hpp"
#include "core/text.hpp"
#include "simulation/formats/ctrace.hpp"
#include "simulation/formats/ctrace_layout.hpp"
#include "simulation/formats/format.hpp"

namespace cenote::formats::ctrace {

namespace {

using simulation::trace;

constexpr int packing_level = 9;
constexpr std::uint32_t no_request = ~std::uint32_t{0};
constexpr unsigned literal_bits = 49;  // a step of more is written down as the identity itself

class varint_writer {
 public:
  void number(std::uint64_t value) {
    for (; value >= 0x80; value >>= 7) byte(static_cast<unsigned>(value & 0x7f) | 0x80U);
    byte(static_cast<unsigned>(value));
  }
  void byte(unsigned value) { bytes_.push_back(static_cast<std::byte>(value)); }
  template <class T>
  void fixed(const T& value) {
    const auto view = std::as_bytes(std::span(&value, 1));
    bytes_.insert(bytes_.end(), view.begin(), view.end());
  }
  void append(std::span<const std::byte> tail) { bytes_.insert(bytes_.end(), tail.begin(), tail.end()); }

  [[nodiscard]] std::vector<std::byte>& bytes() noexcept { return bytes_; }

 private:
  std::vector<std::byte> bytes_;
};

struct chain_piece {
  chain_step kind = chain_step::fresh;
  std::uint64_t place = 0;  ///< the first number of a run, the distance of a copy in requests
  std::uint64_t length = 0;
};

/// Cuts the chains of a trace into pieces, in their order.
class piece_cutter {
 public:
  explicit piece_cutter(const trace& requests) : trace_(requests), last_users_(requests.distinct(), no_request) {}

  /// Those of request `number`, good until the next call; nothing where it has a block twice.
  std::optional<std::span<const chain_piece>> cut(std::uint32_t number) {
    pieces_.clear();
    chain_ = trace_.blocks(trace_.requests()[number]);
    number_ = number;
    old_end_ = 0;
    for (std::size_t place = 0; place < chain_.size();) {
      const chain_piece next = chain_[place] == next_ ? fresh_at(place) : old_at(place);
      pieces_.push_back(next);
      place += next.length;
    }
    for (const std::uint32_t block : chain_) {
      if (std::exchange(last_users_[block], number) == number) return std::nullopt;
    }
    return pieces_;
  }

  /// Blocks that came so far.
  [[nodiscard]] std::uint32_t blocks() const noexcept { return next_; }

 private:
  chain_piece fresh_at(std::size_t place) {
    std::uint64_t length = 0;
    for (; place < chain_.size() && chain_[place] == next_; ++place, ++length) ++next_;
    return {.kind = chain_step::fresh, .place = 0, .length = length};
  }

  chain_piece old_at(std::size_t place) {
    old_end_ = std::max(old_end_, place);
    while (old_end_ < chain_.size() && chain_[old_end_] < next_) ++old_end_;
    std::size_t end = place + 1;
    while (end < old_end_ && chain_[end] == chain_[end - 1] + 1) ++end;
    const chain_piece run{.kind = chain_step::run, .place = chain_[place], .length = end - place};
    const chain_piece deep = copy_from(last_users_[chain_[old_end_ - 1]], place);
    const chain_piece near = copy_from(last_users_[chain_[place]], place);
    const chain_piece& copy = deep.length >= near.length ? deep : near;
    return copy.length >= run.length ? copy : run;
  }

  /// As much from `place` on as an earlier request has in the same place.
  [[nodiscard]] chain_piece copy_from(std::uint32_t earlier, std::size_t place) const {
    if (earlier >= number_) return {};  // none, or a block that came earlier in this chain
    const auto chain = trace_.blocks(trace_.requests()[earlier]);
    const std::size_t end = std::min(chain.size(), old_end_);
    std::size_t same = place;
    while (same < end && chain[same] == chain_[same]) ++same;
    return {.kind = chain_step::copy, .place = number_ - earlier, .length = same - place};
  }

  const trace& trace_;
  std::vector<std::uint32_t> last_users_;  ///< by block
  std::vector<chain_piece> pieces_;
  std::span<const std::uint32_t> chain_;
  std::uint32_t number_ = 0;
  std::uint32_t next_ = 0;   ///< the block that comes next for the first time
  std::size_t old_end_ = 0;  ///< the end of the known blocks in the chain
};

/// Numbers of instances or sessions as they first come.
class first_numbers {
 public:
  std::uint32_t operator()(std::uint32_t old) {
    const auto [place, is_new] = numbers_.try_emplace(old, count());
    if (is_new) old_numbers_.push_back(old);
    return place->second;
  }
  [[nodiscard]] std::uint32_t count() const noexcept { return static_cast<std::uint32_t>(old_numbers_.size()); }
  /// By new ones.
  [[nodiscard]] std::span<const std::uint32_t> old_numbers() const noexcept { return old_numbers_; }

 private:
  std::unordered_map<std::uint32_t, std::uint32_t> numbers_;
  std::vector<std::uint32_t> old_numbers_;
};

class file_writer {
 public:
  file_writer(const trace& requests, const facts& facts)
      : trace_(requests),
        facts_(facts),
        cutter_(requests),
        has_engine_blocks_(
            std::ranges::any_of(requests.requests(), [](const auto& each) { return each.engine_blocks != 0; })) {}

  result<std::vector<std::byte>> write() {
    header_.block_tokens = trace_.block_tokens();
    if (header_.block_tokens == 0 || header_.block_tokens > most_block_tokens) {
      return fail(error_code::malformed,
                  fmt::format("blocks of {} tokens: 1 to {} are kept", header_.block_tokens, most_block_tokens));
    }
    if (std::max(trace_.requests().size(), trace_.stream().size()) > most_numbers) {
      return fail(error_code::malformed, "more than 2^32 - 2 requests or references to blocks");
    }
    file_.fixed(header_);
    for (std::uint32_t i = 0; i < trace_.requests().size(); ++i) {
      if (auto ok = add(i); !ok) return std::unexpected(ok.error());
    }
    if (auto ok = end_frame(); !ok) return std::unexpected(ok.error());
    if (auto ok = put_names(); !ok) return std::unexpected(ok.error());
    end();
    return std::move(file_.bytes());
  }

 private:
  result<void> add(std::uint32_t number) {
    const trace::entry& request = trace_.requests()[number];
    const std::uint64_t room = (request.tokens + trace_.block_tokens() - 1) / trace_.block_tokens();
    if (request.tokens > most_tokens || request.count > room) {
      return fail(error_code::malformed,
                  fmt::format("request {} has {} tokens and {} blocks", number, request.tokens, request.count));
    }
    const std::uint32_t known = cutter_.blocks();
    const auto pieces = cutter_.cut(number);
    if (!pieces) {
      return fail(error_code::malformed, fmt::format("request {} has a block twice", number));
    }
    one_.bytes().clear();
    put(request, *pieces);
    const std::size_t identities = facts_.seed ? 0 : (cutter_.blocks() - frame_first_) * (sizeof(std::uint64_t) + 2);
    const std::size_t whole = frame_.bytes().size() + one_.bytes().size() + identities;
    if (frame_head_.requests > 0 && whole > usual_raw) {
      if (auto ok = end_frame(known); !ok) return ok;
    }
    frame_.append(one_.bytes());
    ++frame_head_.requests;
    frame_head_.references += request.count;
    header_.tokens += request.tokens;
    return {};
  }

  void put(const trace::entry& request, std::span<const chain_piece> pieces) {
    const bool copies = !pieces.empty() && pieces[0].kind == chain_step::copy;
    const chain_piece copy = copies ? pieces[0] : chain_piece{};
    pieces = pieces.subspan(copies ? 1 : 0);
    const bool goes_on = !pieces.empty() && pieces[0].kind == chain_step::fresh;
    const std::uint64_t fresh = goes_on ? pieces[0].length : 0;
    pieces = pieces.subspan(goes_on ? 1 : 0);
    const std::uint32_t instance = instances_(request.instance);
    const std::uint32_t known_sessions = sessions_.count();
    const std::uint32_t session = sessions_(request.session);
    const std::uint32_t expected = copies ? past_sessions_[past_sessions_.size() - copy.place] : session_;
    one_.byte((copies ? has_copy : 0) | (goes_on ? has_new : 0) | (pieces.empty() ? 0 : has_pieces) |
              (request.time_ms != time_ms_ ? has_time : 0) | (instance != instance_ ? has_instance : 0) |
              (session != expected ? has_session : 0) | static_cast<unsigned>(request.access) << access_shift);
    if (request.time_ms != time_ms_) one_.number(request.time_ms - time_ms_);
    if (instance != instance_) one_.number(instance);
    if (copies) one_.number(copy.place), one_.number(copy.length);
    if (goes_on) one_.number(fresh);
    if (!pieces.empty()) put_pieces(pieces);
    one_.number(zigzag(static_cast<std::int64_t>(request.tokens) -
                       static_cast<std::int64_t>(request.count * trace_.block_tokens())));
    if (session != expected) one_.number(session == known_sessions ? 0 : session + std::uint64_t{1});
    if (has_engine_blocks_) one_.number(request.engine_blocks);
    past_sessions_.push_back(session);
    time_ms_ = request.time_ms;
    instance_ = instance;
    session_ = session;
  }

  void put_pieces(std::span<const chain_piece> pieces) {
    one_.number(pieces.size());
    for (const chain_piece& each : pieces) {
      one_.number(each.length << chain_step_bits | static_cast<std::uint64_t>(each.kind));
      if (each.kind != chain_step::fresh) one_.number(each.place);
    }
  }

  /// Those of the blocks from `frame_first_` to `end`: what follows one by one, and what stands apart.
  void put_identities(std::uint32_t end) {
    const auto identities = trace_.identities();
    for (std::uint32_t place = frame_first_; place < end;) {
      std::uint32_t stop = place + 1;
      if (is_literal(place, end)) {
        while (stop < end && is_literal(stop, end)) ++stop;
        frame_.number(std::uint64_t{stop - place} << 1 | 1);
        frame_.append(std::as_bytes(identities.subspan(place, stop - place)));
      } else {
        while (stop < end && identities[stop] == identities[stop - 1] + 1) ++stop;
        frame_.number(std::uint64_t{stop - place} << 1);
        frame_.number(step_of(place));
      }
      place = stop;
    }
  }
  [[nodiscard]] std::uint64_t step_of(std::uint32_t place) const {
    const std::uint64_t expected = place == 0 ? 0 : trace_.identities()[place - 1] + 1;
    return zigzag(static_cast<std::int64_t>(trace_.identities()[place] - expected));
  }
  [[nodiscard]] bool is_literal(std::uint32_t place, std::uint32_t end) const {
    const auto identities = trace_.identities();
    if (place + 1 < end && identities[place + 1] == identities[place] + 1) return false;
    return step_of(place) >> literal_bits != 0;
  }

  result<void> end_frame() { return end_frame(cutter_.blocks()); }
  /// Ends the frame, whose blocks are those up to `end`.
  result<void> end_frame(std::uint32_t end) {
    if (frame_head_.requests == 0) return {};
    if (!facts_.seed) put_identities(end);
    frame_head_.blocks = end - frame_first_;
    frame_first_ = end;
    return put_frame();
  }

  /// Names of instances, where there are any, in frames of their own.
  result<void> put_names() {
    if (facts_.instances.empty()) return {};
    for (const std::uint32_t old : instances_.old_numbers()) {
      if (old >= facts_.instances.size())
        return fail(error_code::malformed, fmt::format("instance {} has no name, others have one", old));
      const std::string name = as_utf8(facts_.instances[old]);
      if (!frame_.bytes().empty() && frame_.bytes().size() + name.size() > usual_raw) {
        if (auto ok = put_frame(); !ok) return ok;
      }
      frame_.number(name.size());
      frame_.append(std::as_bytes(std::span(name)));
    }
    return frame_.bytes().empty() ? result<void>() : put_frame();
  }

  result<void> put_frame() {
    const std::vector<std::byte>& raw = frame_.bytes();
    if (raw.size() > most_raw) {
      return fail(error_code::malformed,
                  fmt::format("frame {} takes {} bytes, more than {}: its requests have too many pieces, or a name is "
                              "too long",
                              index_.size(), raw.size(), most_raw));
    }
    std::vector<std::byte> packed(::ZSTD_compressBound(raw.size()));
    const std::size_t size = ::ZSTD_compress(packed.data(), packed.size(), raw.data(), raw.size(), packing_level);
    if (::ZSTD_isError(size) != 0) return fail(error_code::system, ::ZSTD_getErrorName(size));
    packed.resize(size);
    frame_head_.packed = static_cast<std::uint32_t>(size);
    frame_head_.raw = static_cast<std::uint32_t>(raw.size());
    frame_head_.checksum = checksum_of(packed);
    file_.fixed(frame_head_);
    file_.append(packed);
    index_.push_back(frame_head_);
    frame_head_ = {};
    frame_.bytes().clear();
    return {};
  }

  void end() {
    const auto index = std::as_bytes(std::span(index_));
    file_.append(index);
    file_.fixed(file_trailer{.frames = index_.size(), .checksum = checksum_of(index), .magic = last_magic});
    header_.requests = trace_.requests().size();
    header_.references = trace_.stream().size();
    header_.blocks = trace_.distinct();
    header_.lines = facts_.lines;
    header_.left_out = facts_.left_out;
    header_.flags = (facts_.seed ? 0 : flag_identities) | (facts_.anonymised ? flag_anonymised : 0) |
                    (facts_.full_blocks ? flag_full_blocks : 0) | (facts_.instances.empty() ? 0 : flag_names) |
                    (has_engine_blocks_ ? flag_engine_blocks : 0);
    header_.version = (header_.flags & second_flags) == 0 ? version : second_version;
    header_.seed = facts_.seed.value_or(0);
    header_.checksum = checksum_of(&header_, offsetof(file_header, checksum));
    std::memcpy(file_.bytes().data(), &header_, sizeof(header_));
  }

  const trace& trace_;
  const facts& facts_;
  piece_cutter cutter_;
  bool has_engine_blocks_;
  first_numbers instances_;
  first_numbers sessions_;
  std::vector<std::uint32_t> past_sessions_;  ///< by request
  std::uint64_t time_ms_ = 0;
  std::uint32_t instance_ = 0;
  std::uint32_t session_ = 0;
  varint_writer one_;  ///< the request at hand
  varint_writer frame_;
  frame_head frame_head_;
  std::uint32_t frame_first_ = 0;  ///< the first new block of the frame
  std::vector<frame_head> index_;
  file_header header_;
  varint_writer file_;
};

}  // namespace

std::uint64_t made_identity(std::uint64_t seed, std::uint64_t number) noexcept {
  std::uint64_t word = seed + number;  // each step has an inverse, so different numbers stay different (splitmix64)
  word = (word ^ (word >> 30)) * 0xbf58476d1ce4e5b9ULL;
  word = (word ^ (word >> 27)) * 0x94d049bb133111ebULL;
  return word ^ (word >> 31);
}

result<std::vector<std::byte>> encode(const trace& requests, const facts& facts) {
  return file_writer(requests, facts).write();
}

}  // namespace cenote::formats::ctrace
