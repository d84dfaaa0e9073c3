// What `cenote bench` says: figures, each beside its limit from the same run.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace cenote::bench {

/// Times of one kind, seconds. Not thread-safe.
class samples {
 public:
  void add(double seconds) { all_.push_back(seconds); }
  [[nodiscard]] std::size_t size() const noexcept { return all_.size(); }
  /// The one added last; there must be one.
  [[nodiscard]] double last() const noexcept { return all_.back(); }
  [[nodiscard]] double median() const { return quantile(0.5); }
  /// 0 when there are no samples; q from 0 to 1.
  [[nodiscard]] double quantile(double q) const;

 private:
  std::vector<double> all_;
};

/// What the project promises of a figure.
struct bound {
  /// difference: value - limit, in the figure's unit.
  enum class kind { none, ratio_at_most, ratio_at_least, value_at_most, value_at_least, difference_at_most };
  kind what = kind::none;
  double number = 0;
};

struct figure {
  std::string bench;
  std::string name;  ///< the case
  double value = 0;
  std::string unit;
  std::optional<double> limit = {};  ///< in the same unit; nothing where there is none
  double low = 0;                    ///< tenth and ninetieth percentile of the value
  double high = 0;
  bound promise = {};
  bool measured = true;  ///< false: not on what the promise is about; it is neither kept nor broken

  [[nodiscard]] std::optional<double> ratio() const;
  /// Nothing when nothing was promised, or not measured.
  [[nodiscard]] std::optional<bool> kept() const;
};

/// A time a piece of work: `scale` is what one second is in `unit` (1e6: microseconds).
[[nodiscard]] figure time_figure(std::string bench, std::string name, const samples& value, const samples& limit,
                                 double scale, std::string unit, bound promise = {});

/// A rate: `amount` of `unit` is moved in the time of one sample.
[[nodiscard]] figure rate_figure(std::string bench, std::string name, const samples& value, const samples& limit,
                                 double amount, std::string unit, bound promise = {});

/// The 99th percentile of `value`, beside a time that is `limit` seconds.
[[nodiscard]] figure late_figure(std::string bench, std::string name, const samples& value, double limit, double scale,
                                 std::string unit, bound promise = {});

/// Prints figures as they come. A table has to wait for all of them; JSON lines do not.
class report {
 public:
  explicit report(bool as_json) noexcept : as_json_(as_json) {}

  [[nodiscard]] bool as_json() const noexcept { return as_json_; }
  void add(figure measured);
  /// Text before the figures, at once; nothing for JSON.
  void say(std::string_view text) const;
  /// Text below the table; nothing for JSON.
  void say_below(std::string_view text) { below_ += text; }
  /// The table; nothing for JSON.
  void finish() const;
  [[nodiscard]] const std::vector<figure>& figures() const noexcept { return figures_; }

 private:
  bool as_json_;
  std::vector<figure> figures_;
  std::string below_;
};

/// ">= 0.95" of a ratio, "<= 256 bytes/block" of a value, "<= limit + 200 us" of a difference; empty where nothing was
/// promised.
[[nodiscard]] std::string bound_text(const figure& measured);

/// {"bench","case","value","unit","limit","ratio","bound","kept"}; limit and ratio are null where there is no limit,
/// kept where there is no bound. A figure that is not measured on what its promise is about has "note", too.
[[nodiscard]] std::string json_line(const figure& measured);
[[nodiscard]] std::string table_text(const std::vector<figure>& figures);

}  // namespace cenote::bench
