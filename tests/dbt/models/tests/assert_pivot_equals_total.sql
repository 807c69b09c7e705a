select order_id
from int_order_payments_pivoted
where credit_card_amount + coupon_amount + bank_transfer_amount + gift_card_amount <> total_amount
